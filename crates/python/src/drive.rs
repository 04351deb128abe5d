//! A courier of a party of any type.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use undertone::party::{
    Abort, Aborted, Courier, CourierError, Ledger, Party, PartyId, Phase, SessionId, Status,
};
use undertone::replay::{Journal, Replay, ReplayError};

use crate::errors;

/// Turns the output of a party into a Python object.
pub(crate) type Convert<T> = Arc<dyn Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + Sync>;

/// Makes the Python object of an output that has left its party.
type Converted = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// Where a client puts the values that its party takes at the upload.
pub(crate) trait Give: Send {
    /// Encodes `arrays`. The client's record knows the first `known` of them, or all. Returns the
    /// number of values that were clipped.
    fn values(
        &self,
        arrays: &[Values<'_>],
        weight: f64,
        known: Option<usize>,
    ) -> Result<usize, Abort>;
    /// Zeros in place of the values with this digest, for a party that runs again to a later step.
    fn stand_in(&self, digest: [u8; 32]);
    /// The digest of the values.
    fn sent(&self) -> Option<[u8; 32]>;
}

/// Borrowed values of an array, row after row.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) numbers: Numbers<'a>,
}

/// Borrowed numbers.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a> {
    Single(&'a [f32]),
    Double(&'a [f64]),
}

impl Values<'_> {
    pub(crate) fn len(&self) -> usize {
        match self.numbers {
            Numbers::Single(values) => values.len(),
            Numbers::Double(values) => values.len(),
        }
    }
}

/// What a message of another framework asks of a party that lives from one message to the next.
pub(crate) struct Again<'a> {
    pub(crate) journal: PathBuf,
    pub(crate) session: SessionId,
    pub(crate) past: Vec<Vec<u8>>,
    pub(crate) message: &'a [u8],
    /// The digest of the values that an earlier message has sent.
    pub(crate) sent: Option<[u8; 32]>,
}

/// A courier of any party.
pub(crate) trait Drive: Send {
    fn push(&mut self, from: PartyId, frame: Vec<u8>) -> Result<(), CourierError>;
    fn gone(&mut self, who: PartyId);
    fn abandon(&mut self);
    fn poll(
        &mut self,
        most: usize,
        send: &mut dyn FnMut(PartyId, Vec<u8>),
    ) -> Result<Status, Aborted>;
    fn exchange(&mut self, bundle: &[u8], out: &mut Vec<u8>) -> Result<Status, CourierError>;
    fn release(&mut self);
    /// Runs the party again and takes one step. It is new.
    fn again(
        &mut self,
        again: Again<'_>,
        give: Option<&dyn Give>,
        input: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<(Vec<u8>, Status)>;
    fn is_done(&self) -> bool;
    fn waits_for(&self) -> Vec<PartyId>;
    fn phase(&self) -> Phase;
    fn ledger(&self) -> Option<&Ledger>;
    fn result(&mut self) -> Option<Converted>;
}

/// A courier, and what becomes of its party's output.
pub(crate) struct Driven<P: Party> {
    /// None while it runs again.
    courier: Option<Courier<P>>,
    convert: Convert<P::Output>,
}

impl<P: Party> Driven<P> {
    pub(crate) fn new(courier: Courier<P>, convert: Convert<P::Output>) -> Self {
        Self {
            courier: Some(courier),
            convert,
        }
    }

    fn courier(&mut self) -> Result<&mut Courier<P>, Aborted> {
        self.courier.as_mut().ok_or_else(lost)
    }
}

/// The error of a party whose last run failed.
fn lost() -> Aborted {
    Aborted {
        party: PartyId::SERVER,
        phase: Phase {
            id: 0,
            name: "none",
        },
        cause: Abort::Misuse("this party has failed before; make a new one".into()),
    }
}

impl<P: Party + Send> Drive for Driven<P>
where
    P::Output: Send + 'static,
{
    fn push(&mut self, from: PartyId, frame: Vec<u8>) -> Result<(), CourierError> {
        self.courier()?.push(from, frame)
    }

    fn gone(&mut self, who: PartyId) {
        if let Some(courier) = &mut self.courier {
            courier.gone(who);
        }
    }

    fn abandon(&mut self) {
        if let Some(courier) = &mut self.courier {
            courier.abandon(Abort::Misuse("the caller abandons the protocol".into()));
        }
    }

    fn poll(
        &mut self,
        most: usize,
        send: &mut dyn FnMut(PartyId, Vec<u8>),
    ) -> Result<Status, Aborted> {
        self.courier()?.poll(most, send)
    }

    fn exchange(&mut self, bundle: &[u8], out: &mut Vec<u8>) -> Result<Status, CourierError> {
        self.courier()?.exchange(bundle, out)
    }

    fn release(&mut self) {
        if let Some(courier) = &mut self.courier {
            courier.release();
        }
    }

    fn again(
        &mut self,
        again: Again<'_>,
        give: Option<&dyn Give>,
        input: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<(Vec<u8>, Status)> {
        let courier = self
            .courier
            .take()
            .ok_or_else(|| errors::aborted(&lost()))?;
        let journal = Journal::new(&again.journal, again.session, courier.id());
        let mut lacks_digest = false;
        let stand_in = || match (give, again.sent) {
            (Some(give), Some(sent)) => give.stand_in(sent),
            _ => lacks_digest = true,
        };
        let replay = Replay::new(courier, journal, &again.past, stand_in);
        if lacks_digest {
            return Err(errors::value(
                "an earlier message has sent the values: give their digest (sent=)",
            ));
        }
        let mut replay = replay.map_err(errors::replay)?;
        let stepped = replay.step(again.message, || input().map_err(Stopped::Python));
        let stepped = stepped.map_err(|stopped| match stopped {
            Stopped::Python(error) => error,
            Stopped::Replay(error) => errors::replay(error),
        })?;
        self.courier = Some(replay.into_courier());
        Ok(stepped)
    }

    fn is_done(&self) -> bool {
        self.courier.as_ref().is_some_and(Courier::is_done)
    }

    fn waits_for(&self) -> Vec<PartyId> {
        self.courier
            .as_ref()
            .map(Courier::waits_for)
            .unwrap_or_default()
    }

    fn phase(&self) -> Phase {
        let none = Phase {
            id: 0,
            name: "none",
        };
        self.courier.as_ref().map_or(none, Courier::phase)
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.courier.as_ref().and_then(Courier::ledger)
    }

    fn result(&mut self) -> Option<Converted> {
        let output = self.courier.as_mut().and_then(Courier::output)?;
        let convert = Arc::clone(&self.convert);
        Some(Box::new(move |py| convert(py, output)))
    }
}

/// Why a step of a party that runs again was not taken.
enum Stopped {
    Python(PyErr),
    Replay(ReplayError),
}

impl From<ReplayError> for Stopped {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}
