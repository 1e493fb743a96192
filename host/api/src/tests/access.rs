//! Who may ask.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_protocol::access::Role;

use super::world::{Fake, World, token_status};
use crate::{ApiError, ApiOptions, TlsFiles, Token, serve};

#[test]
fn on_loopback_another_name_for_this_machine_is_refused() {
    let world = World::new();
    assert_eq!(world.get("/api/v1/cluster").0, 200);
    let (status, body) = world.raw(b"GET /api/v1/cluster HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n");
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("E0052") && body.contains("rebound.example"), "{body}");
    assert_eq!(world.raw(b"GET /api/v1/cluster HTTP/1.1\r\nconnection: close\r\n\r\n").0, 400);
    assert_eq!(world.raw(b"GET /api/v1/cluster HTTP/1.0\r\n\r\n").0, 400);
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let world = World::new().with_job("j");
    let (status, _) = world.ask("POST", "/api/v1/jobs/j/cancel", "origin: http://evil.example\r\n", b"");
    assert_eq!(status, 403);
    assert_ne!(world.cluster.told().jobs["j"].state, weir_protocol::api::JobState::Cancelled);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    assert_eq!(world.ask("POST", "/api/v1/jobs/j/rescale", form, b"{\"parallelism\":9}").0, 415);
}

#[test]
fn nothing_is_answered_without_the_token_where_there_is_one() {
    let token = Token::generate().unwrap();
    let world = World::with(Some(token.clone())).with_job("j");
    let with = |value: &str| format!("authorization: {value}\r\n");
    for path in ["/api/v1/cluster", "/metrics", "/api/v1/openapi.json", "/nothing"] {
        assert_eq!(world.get(path).0, 401, "{path}");
    }
    let wrong = Token::generate().unwrap();
    for value in ["Bearer", "Bearer ", &format!("Bearer {}", wrong.secret()), &format!("Basic {}", token.secret())] {
        let (status, body) = world.ask("GET", "/api/v1/cluster", &with(value), b"");
        assert_eq!(status, 401, "{value}");
        assert!(body.contains("E0051") && !body.contains(token.secret()), "{body}");
    }
    for scheme in ["Bearer", "bearer"] {
        let (status, _) = world.ask("GET", "/api/v1/cluster", &with(&format!("{scheme} {}", token.secret())), b"");
        assert_eq!(status, 200, "{scheme}");
    }
}

#[test]
fn other_addresses_need_tls_and_a_token() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tls = node(folder.path());
    for (tls, token, missing) in
        [(None, None, "TLS certificate"), (Some(tls), None, "token"), (None, Some(Token::generate().unwrap()), "TLS certificate")]
    {
        let cluster = Arc::new(Fake::default());
        if let Some(token) = token {
            cluster.tell(|told| drop(told.tokens.insert(token.digest(), token_status("a", Role::Admin))));
        }
        for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0"] {
            let options =
                ApiOptions { listen: listen.parse().unwrap(), tls: tls.clone(), owner_passes: true, cluster: cluster.clone() };
            let error = serve(options, runtime.handle()).unwrap_err();
            assert!(error.to_string().contains(missing), "{error}");
            assert!(error.hint().unwrap().contains("weir cluster init"), "{error}");
        }
    }
}

#[test]
fn s136_on_loopback_another_user_of_the_machine_needs_the_token() {
    use std::os::unix::process::CommandExt;
    let token = Token::generate().unwrap();
    for given in [None, Some(token.clone())] {
        let world = World::of_owner(given.clone());
        assert_eq!(world.get("/api/v1/cluster").0, 200, "its own user needs none");
        let port = world.address.port();
        let ask = |user: u32, line: &str| {
            let request = format!("GET /api/v1/cluster HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n{line}\\r\\n");
            let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"{request}\" >&3; head -c 12 <&3");
            let mut command = std::process::Command::new("bash");
            let done = command.arg("-c").arg(script).uid(user).current_dir("/").output().unwrap();
            String::from_utf8(done.stdout).unwrap()
        };
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(ask(own, ""), "HTTP/1.1 200", "another process of this user");
        // Only root can be somebody else; for others, the list of the kernel is tested by itself.
        if own == 0 {
            let (without, with) = (ask(65_534, ""), ask(65_534, &format!("authorization: Bearer {}\\r\\n", token.secret())));
            match given {
                None => assert_eq!((without.as_str(), with.as_str()), ("HTTP/1.1 401", "HTTP/1.1 401")),
                Some(_) => assert_eq!((without.as_str(), with.as_str()), ("HTTP/1.1 401", "HTTP/1.1 200")),
            }
        }
    }
}

/// A cluster with one node in this folder, as `weir cluster init` makes it.
fn node(folder: &std::path::Path) -> TlsFiles {
    use weir_transport::pki::{Validity, add_node, create_cluster};
    create_cluster(folder, &Validity::days(1)).unwrap();
    let node = folder.join("node");
    add_node(
        folder,
        &node,
        "node",
        weir_transport::Role::Coordinator,
        &["127.0.0.1".to_owned(), "localhost".to_owned()],
        &Validity::days(1),
    )
    .unwrap();
    TlsFiles { certificate: node.join("node.pem"), key: node.join("node-key.pem") }
}

#[test]
fn with_tls_only_who_trusts_the_cluster_and_shows_the_token_is_served() {
    use ureq::tls::{Certificate, RootCerts, TlsConfig};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (tls, _) = (node(folder.path()), node(other.path()));
    let token = Token::generate().unwrap();
    let cluster = Arc::new(Fake::default());
    let options =
        ApiOptions { listen: "0.0.0.0:0".parse().unwrap(), tls: Some(tls), owner_passes: true, cluster: cluster.clone() };
    cluster.tell(|told| drop(told.tokens.insert(token.digest(), token_status("a", Role::Viewer))));
    let server = serve(options, runtime.handle()).unwrap();
    let port = server.local_addr.port();
    let ask = |ca: &std::path::Path, host: &str, token: Option<&Token>| {
        let ca = Certificate::from_pem(&std::fs::read(ca.join("ca.pem")).unwrap()).unwrap();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .root_certs(RootCerts::from([ca]))
            .build();
        let agent = ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).proxy(None).build().new_agent();
        let mut request = agent.get(format!("https://{host}:{port}/api/v1/cluster"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.secret()));
        }
        request.call().map(|response| response.status().as_u16())
    };
    assert_eq!(ask(folder.path(), "127.0.0.1", Some(&token)).unwrap(), 200);
    assert_eq!(ask(folder.path(), "localhost", Some(&token)).unwrap(), 200);
    assert_eq!(ask(folder.path(), "127.0.0.1", None).unwrap(), 401);
    assert!(ask(other.path(), "127.0.0.1", Some(&token)).is_err(), "another cluster's authority");
    let plain =
        World { cluster: Arc::default(), server: None, address: SocketAddr::from(([127, 0, 0, 1], port)), _runtime: runtime };
    assert_ne!(plain.get("/api/v1/cluster").0, 200, "without TLS");
    server.shutdown();
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let good = node(folder.path());
    let failing = |tls: TlsFiles| {
        let options = ApiOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: Some(tls),
            owner_passes: true,
            cluster: Arc::new(Fake::default()),
        };
        match serve(options, runtime.handle()).unwrap_err() {
            ApiError::Tls { path, .. } => path,
            other => panic!("{other}"),
        }
    };
    let missing = folder.path().join("missing.pem");
    assert_eq!(failing(TlsFiles { certificate: missing.clone(), ..good.clone() }), missing);
    assert_eq!(failing(TlsFiles { key: good.certificate.clone(), ..good.clone() }), good.certificate);
}
