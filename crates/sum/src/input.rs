//! What a client brings to a sum.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_party::{Abort, PartyId};
use undertone_setup::identity::Credentials;
use zeroize::Zeroizing;

use super::Word;

/// Whose sum a client has helped to unmask with the values that it brings. All sums of the same
/// values share it.
///
/// Two sums of the same values that differ by one client tell that client's values. So a client
/// that has helped to unmask one sum helps with no other, unless the same clients contribute.
#[derive(Debug, Clone, Default)]
pub struct Answered(Arc<Mutex<Option<Vec<PartyId>>>>);

impl Answered {
    /// Whether the client may still help with a sum of these contributors.
    ///
    /// # Errors
    /// [`Abort::Misuse`] where it has helped with one of others.
    pub fn check(&self, contributors: &[PartyId]) -> Result<(), Abort> {
        match &*self.earlier() {
            Some(earlier) if earlier != contributors => Err(Abort::Misuse(
                "a sum of other clients was unmasked before: the difference of the two would tell \
                 what one client brought"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    /// As [`check`](Self::check), and remembers the contributors. Of two calls one comes first.
    pub(super) fn claim(&self, contributors: &[PartyId]) -> Result<(), Abort> {
        self.earlier().get_or_insert_with(|| contributors.to_vec());
        self.check(contributors)
    }

    fn earlier(&self) -> MutexGuard<'_, Option<Vec<PartyId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client brings to a sum.
#[derive(Clone)]
pub struct Input<W: Word> {
    /// The matrix, row after row, then the shared words.
    pub words: Zeroizing<Vec<W>>,
    /// The rows of the matrix that belong to the client.
    pub own: Range<usize>,
    /// With credentials the client signs its keys and checks everybody's signature.
    pub credentials: Option<Credentials>,
    /// Is set before the first masked word leaves the client. From then on the words may be part of
    /// a sum, whatever becomes of the client. Of several parties that share it one sends its words;
    /// the others abort.
    pub sent: Option<Arc<AtomicBool>>,
    /// Earlier sums of the same values.
    pub answered: Answered,
}

impl<W: Word> Input<W> {
    /// The words of a plain sum.
    pub fn plain(words: Vec<W>) -> Self {
        Self::with_rows(words, 0..0)
    }

    /// The matrix, row after row, then the shared words; rows `own` of the matrix belong to the
    /// client.
    pub fn with_rows(words: Vec<W>, own: Range<usize>) -> Self {
        Self {
            words: Zeroizing::new(words),
            own,
            credentials: None,
            sent: None,
            answered: Answered::default(),
        }
    }

    /// The same, with `credentials` if there are any.
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
        write!(f, "Input({} words, rows {:?})", self.words.len(), self.own)
    }
}
