//! A server's status over HTTP: a page for people, its data as JSON, health and metrics.
//!
//! It is read-only. It listens on an address of its own, which should not be public. It answers
//! under addresses, `localhost` and the names that its operator gives. Under other names a web page
//! of somebody else could read it through a browser beside it (DNS rebinding).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::get;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Bytes;

use crate::server::{Boxed, Watch};
use crate::status::Status;

const PAGE: &str = include_str!("page.html");

/// The page loads nothing from elsewhere, and no other page may frame it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";

/// Length of the longest status in bytes that [`fetch`] reads.
const MAX_STATUS: usize = 16 << 20;

/// Serves the status on `listener` for ever, also under the host `names`.
///
/// # Errors
/// When the operating system fails.
pub fn serve(
    listener: TcpListener,
    watch: Watch,
    names: Vec<String>,
) -> impl Future<Output = std::io::Result<()>> + Send {
    // Boxed: so the code of the server and of HTTP is in this crate.
    let serving: Boxed<'static, _> = Box::pin(serve_pages(listener, watch, names));
    serving
}

/// Whether a request is for an address, for `localhost` or for one of the `names`.
fn is_for(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
    else {
        return false;
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    address.unwrap_or(name).parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

async fn serve_pages(
    listener: TcpListener,
    watch: Watch,
    names: Vec<String>,
) -> std::io::Result<()> {
    let guard = move |request: Request, next: Next| {
        let is_for = is_for(request.headers(), &names);
        async move {
            if is_for {
                return next.run(request).await;
            }
            let why =
                "this page answers under an address, localhost, and the names of --status-host\n";
            (StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
    };
    let page = async || {
        let headers: [(HeaderName, &str); 3] = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (headers, PAGE)
    };
    let for_status = watch.clone();
    let status = async move || match serde_json::to_string(&for_status.status()) {
        Ok(json) => {
            let headers = [
                (header::CONTENT_TYPE, "application/json"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, json).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let metrics = async move || {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], watch.metrics())
    };
    let router = Router::new()
        .route("/", get(page))
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn(guard))
        .route("/healthz", get(async || "ok\n"));
    axum::serve(listener, router).await
}

/// Why a server's status cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[error("no status from {address}: {why}")]
pub struct StatusError {
    /// The address that was asked.
    pub address: SocketAddr,
    /// What went wrong.
    pub why: String,
}

/// Fetches the status of the server whose status page is on `address`.
///
/// # Errors
/// A [`StatusError`].
pub fn fetch(address: SocketAddr) -> impl Future<Output = Result<Status, StatusError>> + Send {
    let fetching: Boxed<'static, _> = Box::pin(fetch_status(address));
    fetching
}

async fn fetch_status(address: SocketAddr) -> Result<Status, StatusError> {
    let failed = |why: String| StatusError { address, why };
    let asking = async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|e| e.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        let request = hyper::Request::get("/status.json")
            .header(header::HOST, address.to_string())
            .body(Empty::<Bytes>::new())
            .map_err(|e| e.to_string())?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(response.status().to_string());
        }
        let body = Limited::new(response.into_body(), MAX_STATUS);
        let body = body.collect().await.map_err(|e| e.to_string())?;
        serde_json::from_slice(&body.to_bytes()).map_err(|e| e.to_string())
    };
    match tokio::time::timeout(Duration::from_secs(5), asking).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(why)) => Err(failed(why)),
        Err(_) => Err(failed("no answer".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_refused() {
        let names = ["Status.example".to_owned()];
        let is_for = |host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            super::is_for(&headers, &names)
        };
        for host in [
            "127.0.0.1:7432",
            "10.0.0.7",
            "[::1]:7432",
            "[::1]",
            "localhost:7432",
            "status.example:7432",
            "status.example",
        ] {
            assert!(is_for(host), "{host}");
        }
        for host in [
            "evil.example:7432",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7432",
            "",
            "[::1",
        ] {
            assert!(!is_for(host), "{host}");
        }
        assert!(!super::is_for(&HeaderMap::new(), &names));
    }
}
