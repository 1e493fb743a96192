//! Bodies: read as they arrive, never beyond their bound, never for longer than allowed.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};
use weir_model::ErrorNumber;

use crate::answer::Refused;
use crate::limits::{BODY_MAX, BODY_PAUSE_MAX};

/// Reads a body of at most `bytes_max`.
///
/// # Errors
/// If it is larger, stops coming, or takes too long. `what` names it in the message.
pub(crate) async fn read(body: Body, headers: &HeaderMap, bytes_max: usize, what: &str) -> Result<Vec<u8>, Refused> {
    let too_large = || {
        let message = format!("cannot take {what}: it is larger than {bytes_max} bytes");
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorNumber::MalformedRequest, message, None)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > bytes_max as u64) {
        return Err(too_large());
    }
    let slow = || {
        let message = format!("cannot take {what}: it stopped coming");
        Refused::new(StatusCode::REQUEST_TIMEOUT, ErrorNumber::MalformedRequest, message, None)
    };
    let all = async {
        let mut bytes = Vec::new();
        let mut parts = body.into_data_stream();
        while let Some(part) = timeout(BODY_PAUSE_MAX, parts.next()).await.map_err(|_| slow())? {
            let part = part.map_err(|error| Refused::invalid(format!("cannot take {what}: {error}")))?;
            if bytes.len() + part.len() > bytes_max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    };
    timeout_at(Instant::now() + BODY_MAX, all).await.map_err(|_| slow())?
}

/// Reads a JSON document of at most `bytes_max`.
///
/// # Errors
/// As [`read`], and if it is not what is expected.
pub(crate) async fn read_json<T: DeserializeOwned>(
    body: Body,
    headers: &HeaderMap,
    bytes_max: usize,
    what: &str,
) -> Result<T, Refused> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Also keeps out forms, which a browser sends anywhere without asking.
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let message = format!("cannot take {what}: its content type is `{kind}`, not application/json");
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorNumber::MalformedRequest, message, None));
    }
    let bytes = read(body, headers, bytes_max, what).await?;
    serde_json::from_slice(&bytes).map_err(|error| Refused::invalid(format!("cannot take {what}: {error}")))
}
