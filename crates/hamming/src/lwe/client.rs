//! The client's online protocol of `lwe`: it is the key owner in some pairs and the evaluator in
//! others.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Mutex;

use undertone_kernel::{BitMatrix, Wiped};
use undertone_lwe::KeyOwner;
use undertone_party::script::try_join_all;
use undertone_party::{Abort, Io, PartyId};
use undertone_setup::seal::Channel;

use super::super::pairwise::ToServer;
use super::super::weight;
use super::evaluates;
use super::evaluator::evaluate;
use super::offline::Prepared;
use super::own::{Own, Shared};
use super::owner::{Keys, serve};

/// The client with its codes.
pub(in super::super) struct Client {
    own: Own,
    server: Channel,
    /// The channels to the other clients.
    channels: BTreeMap<PartyId, Channel>,
}

/// The parts of a client's protocol run side by side.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Abort>> + Send + 'a>>;

impl Client {
    pub(in super::super) fn new(codes: BitMatrix, prepared: Prepared) -> Result<Self, Abort> {
        let Prepared {
            ctx,
            bits,
            params,
            matrix,
        } = prepared;
        ctx.check_codes(&codes, bits)?;
        let weights = (0..codes.rows()).map(|row| weight(&codes, row));
        Ok(Self {
            own: Own {
                weights: Wiped::from(weights.collect::<Vec<_>>()),
                codes,
                session: ctx.session,
                suite: ctx.suite,
                me: ctx.own()?,
                clients: ctx.clients,
                seed: ctx.seed,
                secret: ctx.secret,
                params,
                matrix,
            },
            server: ctx.server,
            channels: ctx.channels,
        })
    }

    /// Serves every evaluator, and evaluates, side by side.
    pub(in super::super) async fn run(self, io: Io) -> Result<(), Abort> {
        let Self {
            own,
            server,
            mut channels,
        } = self;
        let shared = Shared {
            io,
            server: Mutex::new(ToServer::new(server)),
        };
        let others = own.clients.iter().copied();
        let others = others.filter(|other| other.0 != own.me.0 && other.1 > 0 && own.me.1 > 0);
        let (evaluators, owners): (Vec<_>, Vec<_>) =
            others.partition(|other| evaluates(*other, own.me));
        let mut channel = |id: PartyId| {
            let channel = channels.remove(&id);
            channel.ok_or_else(|| Abort::Internal(format!("no channel to {id}")))
        };
        let keys = (!evaluators.is_empty()).then(|| {
            let (suite, codes) = (own.suite, &own.codes);
            let owner = KeyOwner::new(&own.matrix, own.session, suite, &own.secret, codes);
            Keys::new(&own, owner, evaluators.iter().map(|(id, _)| *id))
        });
        let mut tasks: Vec<Task<'_>> = Vec::new();
        if let Some(keys) = &keys {
            for evaluator in &evaluators {
                let channel = channel(evaluator.0)?;
                tasks.push(Box::pin(serve(&own, &shared, keys, *evaluator, channel)));
            }
        }
        if !owners.is_empty() {
            let ends = owners.into_iter().map(|(id, _)| Ok((id, channel(id)?)));
            let ends: BTreeMap<PartyId, Channel> = ends.collect::<Result<_, Abort>>()?;
            tasks.push(Box::pin(evaluate(&own, &shared, ends)));
        }
        try_join_all(tasks).await?;
        shared.done()
    }
}
