//! hyper on tokio's current_thread runtime, beside Weft's server.
//!
//!     hyper-peer --port P --root DIR | --version
//!
//! The page of DIR from memory at /page.html, a greeting at /hello, 404 elsewhere.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const GREETING: Bytes = Bytes::from_static(b"Hello, world!");

fn answer(kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn route(path: &str, page: &Bytes) -> Response<Full<Bytes>> {
    match path {
        "/hello" => answer("text/plain", GREETING),
        "/page.html" => answer("text/html", page.clone()),
        _ => {
            let mut response = answer("text/plain", Bytes::new());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

async fn serve(port: u16, page: Bytes) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        // Out of descriptors, or a client that has gone again: neither ends the server.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let page = page.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let response = route(request.uri().path(), &page);
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that goes away is no news.
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// What this was built with, as its lock file says.
fn version_of(package: &str) -> &'static str {
    let lock: &'static str = include_str!("../Cargo.lock");
    let mut lines = lock.lines();
    let name = format!("name = \"{package}\"");
    if lines.any(|line| line == name) {
        let version = lines.next().and_then(|line| line.strip_prefix("version = \""));
        return version.and_then(|v| v.strip_suffix('"')).unwrap_or("?");
    }
    "?"
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--version") {
        println!("hyper {} on tokio {}", version_of("hyper"), version_of("tokio"));
        return;
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)
    };
    let port = value("--port").and_then(|p| p.parse().ok());
    let (Some(port), Some(root)) = (port, value("--root")) else {
        eprintln!("usage: hyper-peer --port P --root DIR");
        std::process::exit(2);
    };
    let page = std::fs::read(Path::new(root).join("page.html")).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    if let Err(e) = runtime.block_on(serve(port, Bytes::from(page))) {
        eprintln!("hyper-peer: {e}");
        std::process::exit(1);
    }
}
