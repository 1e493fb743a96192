//! What there is to ask for.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_model::limits::{API_BODY_BYTES_MAX, COMPONENT_BYTES_MAX};
use weir_model::{Digest, ErrorNumber};
use weir_protocol::api::{ClusterApi, JobSubmission, Refusal};

use crate::answer::{Refused, json as answer};
use crate::doors::Seat;
use crate::site::Site;
use crate::{body, events, metrics, openapi};

type Answer = Result<Response, Refused>;

/// Routes in the making, with the list of what there is.
struct Table {
    router: Router<Site>,
    listed: Vec<(&'static str, &'static str)>,
}

impl Table {
    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<Site>) -> Table {
        self.router = self.router.route(path, handler);
        self.listed.push((method, path));
        self
    }
}

fn table() -> Table {
    Table { router: Router::new(), listed: Vec::new() }
        .add("get", "/metrics", get(prometheus))
        .add("get", "/api/v1/openapi.json", get(description))
        .add("get", "/api/v1/cluster", get(cluster))
        .add("post", "/api/v1/cluster/adopt", post(adopt))
        .add("get", "/api/v1/workers", get(workers))
        .add("get", "/api/v1/components", get(components))
        .add("put", "/api/v1/components/{name}/{version}", put(push))
        .add("delete", "/api/v1/components/{name}/{version}", delete(remove_component))
        .add("get", "/api/v1/blobs/{digest}", get(has_blob))
        .add("put", "/api/v1/blobs/{digest}", put(push_blob))
        .add("get", "/api/v1/jobs", get(jobs))
        .add("post", "/api/v1/jobs", post(submit))
        .add("get", "/api/v1/jobs/{name}", get(job))
        .add("delete", "/api/v1/jobs/{name}", delete(remove))
        .add("post", "/api/v1/jobs/{name}/stop", post(stop))
        .add("post", "/api/v1/jobs/{name}/cancel", post(cancel))
        .add("post", "/api/v1/jobs/{name}/rescale", post(rescale))
        .add("get", "/api/v1/jobs/{name}/events", get(job_events))
}

/// Method and path of every route.
#[cfg(test)]
pub(crate) fn list() -> Vec<(&'static str, &'static str)> {
    table().listed
}

/// The routes behind the rules of access.
pub(crate) fn router(site: Site) -> Router {
    table()
        .router
        .fallback(|request: Request| async move {
            let message = format!("there is no {}", request.uri().path());
            Refused::new(
                StatusCode::NOT_FOUND,
                ErrorNumber::MalformedRequest,
                message,
                Some("/api/v1/openapi.json says what there is"),
            )
        })
        .method_not_allowed_fallback(|request: Request| async move {
            let message = format!("{} cannot be asked with {}", request.uri().path(), request.method());
            let hint = "/api/v1/openapi.json says what there is";
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, ErrorNumber::MalformedRequest, message, Some(hint))
        })
        .layer(middleware::from_fn_with_state(site.clone(), check))
        .with_state(site)
}

async fn check(State(site): State<Site>, request: Request, next: Next) -> Response {
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    let is_owner = seat.as_ref().is_some_and(|seat| seat.is_owner());
    let checked = site.rules.check(request.uri(), request.headers(), is_owner).and_then(|()| match seat {
        Some(seat) if !seat.admit() => Err(busy()),
        _ => Ok(()),
    });
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            tracing::debug!(path = request.uri().path(), ?refused, "a request was refused");
            let mut response = refused.into_response();
            // Who was refused keeps no place, and nothing that it sent along is looked at.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

fn busy() -> Refused {
    let message = "cannot answer a request: as many connections are open as there may be";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, ErrorNumber::ApiBusy, message, Some("try again in a moment"))
}

/// Parts of a path, with errors of our own form.
struct Named<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named<T>, Refused> {
        let Path(named) = Path::from_request_parts(parts, state).await?;
        Ok(Named(named))
    }
}

impl From<PathRejection> for Refused {
    fn from(rejection: PathRejection) -> Refused {
        Refused::invalid(format!("cannot read the path: {rejection}"))
    }
}

impl From<QueryRejection> for Refused {
    fn from(rejection: QueryRejection) -> Refused {
        Refused::invalid(format!("cannot read the query: {rejection}"))
    }
}

/// Asks the cluster for something that is always there.
async fn shown<T: Serialize + Send + 'static>(site: &Site, call: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static) -> Answer {
    Ok(answer(StatusCode::OK, &site.calls.call(call).await?))
}

/// Asks the cluster for something that it may refuse.
async fn asked<T: Serialize + Send + 'static>(
    site: &Site,
    call: impl FnOnce(&dyn ClusterApi) -> Result<T, Refusal> + Send + 'static,
) -> Answer {
    Ok(answer(StatusCode::OK, &site.calls.call(call).await??))
}

/// Asks the cluster to do something that gives nothing back.
async fn done(site: &Site, call: impl FnOnce(&dyn ClusterApi) -> Result<(), Refusal> + Send + 'static) -> Answer {
    site.calls.call(call).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn prometheus(State(site): State<Site>) -> Answer {
    let page = site.calls.call(metrics::page).await?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response())
}

async fn description() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi::TEXT).into_response()
}

async fn cluster(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.status()).await
}

/// Body of a request to take another coordinator's place.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Adopt {
    origin: String,
}

async fn adopt(State(site): State<Site>, headers: HeaderMap, body: Body) -> Answer {
    let Adopt { origin } = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a coordinator's id").await?;
    asked(&site, move |cluster| cluster.adopt(&origin)).await
}

async fn workers(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.workers()).await
}

async fn components(State(site): State<Site>) -> Answer {
    asked(&site, |cluster| cluster.components()).await
}

async fn push(
    State(site): State<Site>,
    Named((name, version)): Named<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let turn = site.calls.upload().await?;
    let bytes = body::read(body, &headers, COMPONENT_BYTES_MAX, "a component").await?;
    let pushed = move |cluster: &dyn ClusterApi| {
        let digest = cluster.push_component(&bytes, Some((&name, &version)));
        drop((bytes, turn));
        digest.map(|digest| json!({ "name": name, "version": version, "digest": digest }))
    };
    asked(&site, pushed).await
}

async fn remove_component(State(site): State<Site>, Named((name, version)): Named<(String, String)>) -> Answer {
    done(&site, move |cluster| cluster.remove_component(&name, &version)).await
}

fn parse_digest(text: &str) -> Result<Digest, Refused> {
    text.parse().map_err(|error| Refused::invalid(format!("`{text}` is not a digest: {error}")))
}

async fn has_blob(State(site): State<Site>, Named(digest): Named<String>) -> Answer {
    let digest = parse_digest(&digest)?;
    if site.calls.call(move |cluster| cluster.has_component(digest)).await? {
        return Ok(answer(StatusCode::OK, &json!({ "digest": digest })));
    }
    Err(Refused::new(
        StatusCode::NOT_FOUND,
        ErrorNumber::NoSuchComponent,
        format!("there is no component of digest {digest}"),
        None,
    ))
}

async fn push_blob(State(site): State<Site>, Named(digest): Named<String>, headers: HeaderMap, body: Body) -> Answer {
    let expected = parse_digest(&digest)?;
    let turn = site.calls.upload().await?;
    let bytes = body::read(body, &headers, COMPONENT_BYTES_MAX, "a component").await?;
    let found = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
    if found.as_ref() != expected.0 {
        return Err(Refused::invalid(format!("cannot take a component as {expected}: what came has another digest")));
    }
    let pushed = move |cluster: &dyn ClusterApi| {
        let digest = cluster.push_component(&bytes, None);
        drop((bytes, turn));
        digest.map(|digest| json!({ "digest": digest }))
    };
    asked(&site, pushed).await
}

async fn jobs(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.jobs()).await
}

async fn submit(State(site): State<Site>, headers: HeaderMap, body: Body) -> Answer {
    let submission: JobSubmission = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a job").await?;
    let status = site.calls.call(move |cluster| cluster.submit(submission)).await??;
    Ok(answer(StatusCode::CREATED, &status))
}

async fn job(State(site): State<Site>, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.job(&name)).await
}

async fn remove(State(site): State<Site>, Named(name): Named<String>) -> Answer {
    done(&site, move |cluster| cluster.remove(&name)).await
}

async fn stop(State(site): State<Site>, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.stop(&name)).await
}

async fn cancel(State(site): State<Site>, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.cancel(&name)).await
}

/// Body of a request to rescale.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rescale {
    parallelism: u32,
}

async fn rescale(State(site): State<Site>, Named(name): Named<String>, headers: HeaderMap, body: Body) -> Answer {
    let Rescale { parallelism } = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a parallelism").await?;
    asked(&site, move |cluster| cluster.rescale(&name, parallelism)).await
}

async fn job_events(
    State(site): State<Site>,
    Named(name): Named<String>,
    query: Result<Query<events::EventsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let Query(query) = query?;
    events::events(site, name, query, headers).await
}
