//! What a request is answered with: JSON, and for errors `{kind, code, message, hint}` with the status that goes with it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use weir_model::ErrorNumber;
use weir_protocol::api::{Refusal, RefusalKind};

/// A refusal with its status.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    refusal: Refusal,
}

impl Refused {
    /// A refusal of this crate's own.
    pub(crate) fn new(status: StatusCode, code: ErrorNumber, message: impl Into<String>, hint: Option<&str>) -> Refused {
        let kind = match status {
            StatusCode::NOT_FOUND => RefusalKind::NotFound,
            StatusCode::SERVICE_UNAVAILABLE => RefusalKind::Unavailable,
            StatusCode::INTERNAL_SERVER_ERROR => RefusalKind::Internal,
            _ => RefusalKind::Invalid,
        };
        let refusal = Refusal { kind, code: code.to_string(), message: message.into(), hint: hint.map(str::to_owned) };
        Refused { status, refusal }
    }

    /// The request cannot be understood.
    pub(crate) fn invalid(message: impl Into<String>) -> Refused {
        Refused::new(
            StatusCode::BAD_REQUEST,
            ErrorNumber::MalformedRequest,
            message,
            Some("/api/v1/openapi.json says what there is"),
        )
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let status = match refusal.kind {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            RefusalKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refused { status, refusal }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        if self.status.is_server_error() && self.status != StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!(code = self.refusal.code, message = self.refusal.message, "a request failed");
        }
        let mut response = json(self.status, &self.refusal);
        match self.status {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// A JSON document.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            (status, [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], body).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
