//! A client's input to a sum.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_party::{Abort, PartyId};
use undertone_setup::identity::Credentials;
use zeroize::Zeroizing;

use super::Word;

/// The contributors of the sum that a client has helped to unmask. All sums of the same values
/// share one `Answered`.
///
/// Two sums of the same values that differ by one client reveal that client's values. So a client
/// helps to unmask a second sum only if the same clients contribute.
#[derive(Debug, Clone, Default)]
pub struct Answered(Arc<Mutex<Option<Vec<PartyId>>>>);

impl Answered {
    /// Memory that allows for sums of these contributors only, in ascending order.
    pub fn only(contributors: Vec<PartyId>) -> Self {
        Self(Arc::new(Mutex::new(Some(contributors))))
    }

    /// Checks that the client may help to unmask a sum of these contributors (SUM-25).
    ///
    /// # Errors
    /// [`Abort::Misuse`] when it has helped to unmask a sum of other contributors.
    pub fn check(&self, contributors: &[PartyId]) -> Result<(), Abort> {
        match &*self.earlier() {
            Some(earlier) if earlier != contributors => Err(Abort::Misuse(
                "this client allows for one set of contributors, and these are others: the \
                 difference of two sums could reveal one client's values"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// Like [`check`](Self::check), and remembers the contributors. Of concurrent calls one wins.
    pub(super) fn claim(&self, contributors: &[PartyId]) -> Result<(), Abort> {
        self.earlier().get_or_insert_with(|| contributors.to_vec());
        self.check(contributors)
    }

    fn earlier(&self) -> MutexGuard<'_, Option<Vec<PartyId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Give<W> = dyn Fn() -> Result<Zeroizing<Vec<W>>, Abort> + Send + Sync;

/// The words that a client contributes: the matrix, row after row, then the shared words.
#[derive(Clone)]
pub enum Words<W: Word> {
    /// Words that exist when the sum begins.
    Ready(Zeroizing<Vec<W>>),
    /// Words that are made in the first step of phase [`UPLOAD`](crate::UPLOAD), when all secrets
    /// are shared. A client that trains a model trains then. If it fails, it is dropped like any
    /// other client, and the sum goes on without it.
    Late(Arc<Give<W>>),
}

impl<W: Word> Words<W> {
    /// The words, if they are ready. Otherwise there are none.
    pub fn ready(&self) -> &[W] {
        match self {
            Self::Ready(words) => words,
            Self::Late(_) => &[],
        }
    }
}

/// A client's input to a sum.
#[derive(Clone)]
pub struct Input<W: Word> {
    /// The words.
    pub words: Words<W>,
    /// The client's own rows of the matrix.
    pub own: Range<usize>,
    /// With credentials the client signs its keys and checks all signatures.
    pub credentials: Option<Credentials>,
    /// Set before the first masked word leaves the client. From then on the words may be part of a
    /// sum, even if the client drops out. If several parties share this flag, one sends its words
    /// and the others abort (SUM-13).
    pub sent: Option<Arc<AtomicBool>>,
    /// The memory of earlier sums of the same values.
    pub answered: Answered,
}

impl<W: Word> Input<W> {
    /// The input of a plain sum.
    pub fn plain(words: Vec<W>) -> Self {
        Self::with_rows(words, 0..0)
    }

    /// The input of a client that owns rows `own` of the matrix: the matrix, row after row, then
    /// the shared words.
    pub fn with_rows(words: Vec<W>, own: Range<usize>) -> Self {
        Self {
            words: Words::Ready(Zeroizing::new(words)),
            own,
            credentials: None,
            sent: None,
            answered: Answered::default(),
        }
    }

    /// The input of a plain sum whose words `give` returns when they are due. See [`Words::Late`].
    pub fn late(
        give: impl Fn() -> Result<Zeroizing<Vec<W>>, Abort> + Send + Sync + 'static,
    ) -> Self {
        Self {
            words: Words::Late(Arc::new(give)),
            ..Self::plain(Vec::new())
        }
    }

    /// The same input, with `credentials` if there are any.
    #[must_use]
    pub fn with_credentials(self, credentials: impl Into<Option<Credentials>>) -> Self {
        Self {
            credentials: credentials.into(),
            ..self
        }
    }
}

impl<W: Word> From<Vec<W>> for Input<W> {
    fn from(words: Vec<W>) -> Self {
        Self::plain(words)
    }
}

impl<W: Word> fmt::Debug for Input<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Words::Ready(words) => write!(f, "Input({} words, rows {:?})", words.len(), self.own),
            Words::Late(_) => write!(f, "Input(late words, rows {:?})", self.own),
        }
    }
}
