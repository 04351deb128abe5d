//! The lobby as a gRPC service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonic::{Request, Response, Streaming};

use super::Caller;
use super::connection::converse;
use super::lobby::Lobby;
use super::outgoing::{Outgoing, Sender};
use crate::wire::{self, FromClient};

pub(super) struct Service(pub(super) Arc<Lobby>);

#[tonic::async_trait]
impl wire::Undertone for Service {
    type ConnectStream = Outgoing;

    async fn connect(
        &self,
        request: Request<Streaming<FromClient>>,
    ) -> Result<Response<Outgoing>, tonic::Status> {
        let Some(caller) = request.extensions().get::<Caller>().cloned() else {
            return Err(tonic::Status::internal("a connection without TLS"));
        };
        let number = self.0.connections.fetch_add(1, Ordering::Relaxed);
        let (sender, outgoing) = Sender::new(number);
        let lobby = Arc::clone(&self.0);
        tokio::spawn(converse(lobby, caller, request.into_inner(), sender));
        Ok(Response::new(outgoing))
    }
}
