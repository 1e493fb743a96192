//! Events of a job: as a JSON array, or as server-sent events that go on until the client has had enough.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Deserialize;
use weir_model::Digest;
use weir_protocol::api::JobEvent;

use crate::answer::{Refused, json};
use crate::calls::{Calls, Turn};
use crate::limits::{FOLLOW_STEP, WAIT_MAX};
use crate::site::{Site, left};

/// What a request for events may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only events with greater numbers.
    #[serde(default)]
    after: u64,
    /// How long to wait where there are none.
    #[serde(default)]
    wait_ms: u64,
}

/// Answers with the events there are, or a stream of them if that is what the client accepts.
pub(crate) async fn events(
    site: Site,
    token: Option<Digest>,
    name: String,
    query: EventsQuery,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/event-stream") {
        return follow(site, token, name, query, &headers).await;
    }
    let wait = Duration::from_millis(query.wait_ms).min(WAIT_MAX);
    let after = query.after;
    let found = if wait.is_zero() {
        site.calls.call(move |cluster| cluster.events(&name, after, Duration::ZERO)).await??
    } else {
        let turn = site.calls.follower()?;
        site.calls.follow(&turn, move |cluster| cluster.events(&name, after, wait)).await??
    };
    Ok(json(StatusCode::OK, &found))
}

/// Where a stream of events is.
struct Follower {
    site: Site,
    /// What was shown for it. Once it counts no longer, the stream ends.
    token: Option<Digest>,
    turn: Arc<Turn>,
    name: Arc<str>,
    after: u64,
    /// Read and not sent yet.
    ready: std::vec::IntoIter<JobEvent>,
}

async fn follow(
    site: Site,
    token: Option<Digest>,
    name: String,
    query: EventsQuery,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let after = last.unwrap_or(query.after);
    let turn = site.calls.follower()?;
    let name: Arc<str> = name.into();
    // What is wrong with the request is told before the stream begins.
    let ready = step(&site.calls, &turn, &name, after, Duration::ZERO).await?.into_iter();
    let follower = Follower { site, token, turn, name, after, ready };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        let text = serde_json::to_string(&event).unwrap_or_default();
        let sent = Event::default().id(event.number.to_string()).event(event.kind).data(text);
        Some((Ok::<_, Infallible>(sent), follower))
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, axum::http::HeaderValue::from_static("no-store"));
    Ok(response)
}

impl Follower {
    /// The next event; none when the server ends, the job is forgotten, or the token counts no longer.
    async fn next(&mut self) -> Option<JobEvent> {
        loop {
            if let Some(event) = self.ready.next() {
                self.after = event.number;
                return Some(event);
            }
            if self.token.is_some_and(|token| self.site.calls.who(token).is_none()) {
                return None;
            }
            let mut leaving = self.site.leaving.clone();
            let step = step(&self.site.calls, &self.turn, &self.name, self.after, FOLLOW_STEP);
            let found = tokio::select! {
                found = step => found.ok()?,
                () = left(&mut leaving) => return None,
            };
            self.ready = found.into_iter();
        }
    }
}

async fn step(calls: &Calls, turn: &Arc<Turn>, name: &Arc<str>, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refused> {
    let name = Arc::clone(name);
    Ok(calls.follow(turn, move |cluster| cluster.events(&name, after, wait)).await??)
}
