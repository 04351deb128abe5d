//! Opens a gRPC channel over TCP and TLS.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};
use tonic::transport::{Channel, Uri};

use super::{Config, JoinError};
use crate::server::STREAM_WINDOW;
use crate::tls::{Counted, Traffic, export};
use crate::trust::untrusted;

/// Connects to the server. Returns the channel, and a secret that TLS exports for this connection.
pub(crate) async fn reach(
    config: &Config,
    tls: Arc<ClientConfig>,
    traffic: Arc<Traffic>,
) -> Result<(Channel, [u8; 32]), JoinError> {
    let unreachable = |why: String| JoinError::Unreachable {
        server: config.server.clone(),
        time: Duration::ZERO,
        why,
    };
    if !config.server.contains(':') {
        return Err(JoinError::Config(format!(
            "the server's address {:?} is not of the form HOST:PORT",
            config.server
        )));
    }
    let host = match &config.server_name {
        Some(name) => name,
        None => config.server.rsplit_once(':').map_or("", |(host, _)| host),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let wrong = |_| JoinError::Config(format!("{host:?} is no host name and no IP address"));
    let name = ServerName::try_from(host.clone()).map_err(wrong)?;
    let connecting = tokio::time::timeout(config.keep_alive, async {
        let stream = TcpStream::connect(&config.server).await?;
        stream.set_nodelay(true)?;
        let counted = Counted {
            inner: stream,
            traffic,
        };
        TlsConnector::from(tls).connect(name, counted).await
    });
    let stream = match connecting.await {
        Err(_) => {
            let seconds = config.keep_alive.as_secs_f64();
            return Err(unreachable(format!("no answer within {seconds} s")));
        }
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let tls = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            return Err(match tls {
                // NET-6
                Some(rustls::Error::InvalidCertificate(why)) => JoinError::Untrusted {
                    server: config.server.clone(),
                    why: untrusted(why),
                },
                _ => unreachable(error.to_string()),
            });
        }
    };
    let exported = export(stream.get_ref().1).map_err(|e| unreachable(e.to_string()))?;
    let mut stream = Some(TokioIo::new(stream));
    let once = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    let channel = Channel::builder(Uri::from_static("http://undertone"))
        .http2_keep_alive_interval(config.keep_alive)
        .keep_alive_timeout(config.keep_alive)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW)
        .connect_with_connector(once)
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    Ok((channel, exported))
}
