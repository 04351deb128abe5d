//! A client's input to a sum.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use undertone_job::record::Claims;
use undertone_party::Abort;
use undertone_setup::identity::Credentials;
use zeroize::Zeroizing;

use super::Word;

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
    /// Who answers for the words: the record of the client (SUM-13, SUM-25), or whoever runs the
    /// sum as a part of something that it has claimed.
    pub claims: Claims,
}

impl<W: Word> Input<W> {
    /// The input of a plain sum, for which the caller answers.
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
            claims: Claims::Made(None),
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
