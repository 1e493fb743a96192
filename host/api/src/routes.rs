//! What there is to ask for, and which role it takes: one table. A route without a role cannot be added to it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_model::limits::{API_BODY_BYTES_MAX, COMPONENT_BYTES_MAX};
use weir_model::{Digest, ErrorNumber};
use weir_protocol::access::{CreatedToken, NewToken, Person, Role};
use weir_protocol::api::{ClusterApi, JobSubmission, Refusal};

use crate::Token;
use crate::access::Visitor;
use crate::answer::{Refused, json as answer};
use crate::doors::Seat;
use crate::site::Site;
use crate::{body, events, metrics, openapi};

type Answer = Result<Response, Refused>;

/// Routes in the making, with the list of what there is.
struct Table {
    router: Router<Site>,
    listed: Vec<(&'static str, &'static str, Role)>,
}

impl Table {
    /// A route that only those with a role are served at.
    fn add(mut self, method: &'static str, path: &'static str, role: Role, handler: MethodRouter<Site>) -> Table {
        let guarded = handler.route_layer(middleware::from_fn(move |request, next| allow(role, request, next)));
        self.router = self.router.route(path, guarded);
        self.listed.push((method, path, role));
        self
    }
}

/// What there is, and which role it takes.
fn table() -> Table {
    use Role::{Admin, Operator, Submitter, Viewer};
    Table { router: Router::new(), listed: Vec::new() }
        .add("get", "/metrics", Viewer, get(prometheus))
        .add("get", "/api/v1/openapi.json", Viewer, get(description))
        .add("get", "/api/v1/cluster", Viewer, get(cluster))
        .add("post", "/api/v1/cluster/adopt", Admin, post(adopt))
        .add("get", "/api/v1/workers", Viewer, get(workers))
        .add("get", "/api/v1/components", Viewer, get(components))
        .add("put", "/api/v1/components/{name}/{version}", Submitter, put(push))
        .add("delete", "/api/v1/components/{name}/{version}", Submitter, delete(remove_component))
        .add("get", "/api/v1/blobs/{digest}", Viewer, get(has_blob))
        .add("put", "/api/v1/blobs/{digest}", Submitter, put(push_blob))
        .add("get", "/api/v1/jobs", Viewer, get(jobs))
        .add("post", "/api/v1/jobs", Submitter, post(submit))
        .add("get", "/api/v1/jobs/{name}", Viewer, get(job))
        .add("delete", "/api/v1/jobs/{name}", Submitter, delete(remove))
        .add("post", "/api/v1/jobs/{name}/stop", Operator, post(stop))
        .add("post", "/api/v1/jobs/{name}/cancel", Operator, post(cancel))
        .add("post", "/api/v1/jobs/{name}/rescale", Operator, post(rescale))
        .add("get", "/api/v1/jobs/{name}/events", Viewer, get(job_events))
        .add("get", "/api/v1/events", Viewer, get(cluster_events))
        .add("get", "/api/v1/tokens", Admin, get(tokens))
        .add("post", "/api/v1/tokens", Admin, post(create_token))
        .add("delete", "/api/v1/tokens/{name}", Admin, delete(revoke_token))
}

/// Method, path and role of every route.
#[cfg(test)]
pub(crate) fn list() -> Vec<(&'static str, &'static str, Role)> {
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

async fn check(State(site): State<Site>, mut request: Request, next: Next) -> Response {
    let seat = request.extensions().get::<Arc<Seat>>().cloned();
    let owner = seat.as_ref().and_then(|seat| seat.owner());
    let checked = site.rules.check(request.uri(), request.headers(), owner, |token| site.calls.who(token));
    let checked = checked.and_then(|admitted| match seat {
        Some(seat) if !seat.admit() => Err(busy()),
        _ => Ok(admitted),
    });
    match checked {
        Ok(admitted) => {
            request.extensions_mut().insert(admitted);
            next.run(request).await
        }
        Err(refused) => {
            tracing::debug!(path = request.uri().path(), ?refused, "a request was refused");
            let mut response = refused.into_response();
            // Who was refused keeps no place, and nothing that it sent along is looked at.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

/// Serves a request if who asks has a role, and has the log say who changed what.
async fn allow(role: Role, request: Request, next: Next) -> Response {
    // Without it the request came past the rules, which none does: then it is nobody's.
    let Some(admitted) = request.extensions().get::<Visitor>().cloned() else { return nobody().into_response() };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if let Err(refused) = admitted.check(role, &method, &path) {
        tracing::info!(by = %admitted.asker.person, %method, path, %role, "a request was refused: another role is needed");
        return refused.into_response();
    }
    let response = next.run(request).await;
    if method != Method::GET {
        tracing::info!(by = %admitted.asker.person, %method, path, status = response.status().as_u16(), "a request to change something");
    }
    response
}

fn nobody() -> Refused {
    let message = "cannot answer a request: nobody knows who asks";
    Refused::new(StatusCode::UNAUTHORIZED, ErrorNumber::TokenWrong, message, None)
}

/// Who asks, for what is told of them.
struct By(Person);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<By, Refused> {
        parts.extensions.get::<Visitor>().map(|admitted| By(admitted.asker.person.clone())).ok_or_else(nobody)
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

async fn adopt(State(site): State<Site>, By(by): By, headers: HeaderMap, body: Body) -> Answer {
    let Adopt { origin } = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a coordinator's id").await?;
    asked(&site, move |cluster| cluster.adopt(&by, &origin)).await
}

async fn workers(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.workers()).await
}

async fn components(State(site): State<Site>) -> Answer {
    asked(&site, |cluster| cluster.components()).await
}

async fn push(
    State(site): State<Site>,
    By(by): By,
    Named((name, version)): Named<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let turn = site.calls.upload().await?;
    let bytes = body::read(body, &headers, COMPONENT_BYTES_MAX, "a component").await?;
    let pushed = move |cluster: &dyn ClusterApi| {
        let digest = cluster.push_component(&by, &bytes, Some((&name, &version)));
        drop((bytes, turn));
        digest.map(|digest| json!({ "name": name, "version": version, "digest": digest }))
    };
    asked(&site, pushed).await
}

async fn remove_component(State(site): State<Site>, By(by): By, Named((name, version)): Named<(String, String)>) -> Answer {
    done(&site, move |cluster| cluster.remove_component(&by, &name, &version)).await
}

fn parse_digest(text: &str) -> Result<Digest, Refused> {
    text.parse().map_err(|error| Refused::invalid(format!("`{text}` is not a digest: {error}")))
}

async fn has_blob(State(site): State<Site>, Named(digest): Named<String>) -> Answer {
    let digest = parse_digest(&digest)?;
    if let Some(description) = site.calls.call(move |cluster| cluster.describe_component(digest)).await?? {
        return Ok(answer(StatusCode::OK, &json!({ "digest": digest, "description": description })));
    }
    Err(Refused::new(
        StatusCode::NOT_FOUND,
        ErrorNumber::NoSuchComponent,
        format!("there is no component of digest {digest}"),
        None,
    ))
}

async fn push_blob(State(site): State<Site>, By(by): By, Named(digest): Named<String>, headers: HeaderMap, body: Body) -> Answer {
    let expected = parse_digest(&digest)?;
    let turn = site.calls.upload().await?;
    let bytes = body::read(body, &headers, COMPONENT_BYTES_MAX, "a component").await?;
    let found = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
    if found.as_ref() != expected.0 {
        return Err(Refused::invalid(format!("cannot take a component as {expected}: what came has another digest")));
    }
    let pushed = move |cluster: &dyn ClusterApi| {
        let digest = cluster.push_component(&by, &bytes, None);
        drop((bytes, turn));
        digest.map(|digest| json!({ "digest": digest }))
    };
    asked(&site, pushed).await
}

async fn jobs(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.jobs()).await
}

async fn submit(State(site): State<Site>, By(by): By, headers: HeaderMap, body: Body) -> Answer {
    let submission: JobSubmission = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a job").await?;
    let status = site.calls.call(move |cluster| cluster.submit(&by, submission)).await??;
    Ok(answer(StatusCode::CREATED, &status))
}

async fn job(State(site): State<Site>, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.job(&name)).await
}

async fn remove(State(site): State<Site>, By(by): By, Named(name): Named<String>) -> Answer {
    done(&site, move |cluster| cluster.remove(&by, &name)).await
}

async fn stop(State(site): State<Site>, By(by): By, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.stop(&by, &name)).await
}

async fn cancel(State(site): State<Site>, By(by): By, Named(name): Named<String>) -> Answer {
    asked(&site, move |cluster| cluster.cancel(&by, &name)).await
}

/// Body of a request to rescale.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rescale {
    parallelism: u32,
}

async fn rescale(State(site): State<Site>, By(by): By, Named(name): Named<String>, headers: HeaderMap, body: Body) -> Answer {
    let Rescale { parallelism } = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a parallelism").await?;
    asked(&site, move |cluster| cluster.rescale(&by, &name, parallelism)).await
}

async fn job_events(
    State(site): State<Site>,
    Extension(admitted): Extension<Visitor>,
    Named(name): Named<String>,
    query: Result<Query<events::EventsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer {
    let Query(query) = query?;
    events::events(site, admitted.token, name, query, headers).await
}

/// What a request for events of the cluster may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    /// Only events with greater numbers.
    #[serde(default)]
    after: u64,
}

async fn cluster_events(State(site): State<Site>, query: Result<Query<After>, QueryRejection>) -> Answer {
    let Query(After { after }) = query?;
    asked(&site, move |cluster| cluster.cluster_events(after)).await
}

async fn tokens(State(site): State<Site>) -> Answer {
    shown(&site, |cluster| cluster.tokens()).await
}

async fn create_token(State(site): State<Site>, By(by): By, headers: HeaderMap, body: Body) -> Answer {
    let wanted: NewToken = body::read_json(body, &headers, API_BODY_BYTES_MAX, "a token").await?;
    let made = Token::generate().map_err(|error| {
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorNumber::TokenNotChanged, error.to_string(), None)
    })?;
    let digest = made.digest();
    let token = site.calls.call(move |cluster| cluster.create_token(&by, wanted, digest)).await??;
    Ok(answer(StatusCode::CREATED, &CreatedToken { token, secret: made.secret().to_owned() }))
}

async fn revoke_token(State(site): State<Site>, By(by): By, Named(name): Named<String>) -> Answer {
    done(&site, move |cluster| cluster.revoke_token(&by, &name)).await
}
