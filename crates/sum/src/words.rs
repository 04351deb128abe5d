//! The two types of words, and the parties of a sum for each.
//!
//! The code of a sum is generic over its words. The methods of [`Word`] make it for both types in
//! this crate, so that crates that add up compile none of it.

use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, Script};

use super::Rules;
use super::client::{self, Sums};
use super::input::Input;
use super::server::{self, OwnWords, Owners, Total};

/// The words of a sum: `u32` and `u64`.
pub trait Word: undertone_kernel::mask::Word {
    #[doc(hidden)]
    fn client(
        rules: Rules,
        me: PartyId,
        input: Input<Self>,
        seed: Seed,
    ) -> Result<Script<'static, Sums<Self>>, Abort>;

    #[doc(hidden)]
    fn server(
        rules: Rules,
        expected: Owners,
        own: Option<OwnWords<Self>>,
    ) -> Result<Script<'static, Total<Self>>, Abort>;
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            fn client(
                rules: Rules,
                me: PartyId,
                input: Input<Self>,
                seed: Seed,
            ) -> Result<Script<'static, Sums<Self>>, Abort> {
                client::client(rules, me, input, seed)
            }

            fn server(
                rules: Rules,
                expected: Owners,
                own: Option<OwnWords<Self>>,
            ) -> Result<Script<'static, Total<Self>>, Abort> {
                server::server(rules, expected, own)
            }
        }
    )*};
}

words!(u32, u64);

/// The script of client `me`, which contributes `input`. `seed` is its randomness. In a plain sum
/// the input is a vector of words.
///
/// # Errors
/// [`Abort::Misuse`] when words, rows and rules do not fit, or when the rules name a malicious
/// server and there are no credentials. The script aborts with it when words that come late do not
/// fit.
pub fn client<W: Word>(
    rules: Rules,
    me: PartyId,
    input: impl Into<Input<W>>,
    seed: Seed,
) -> Result<Script<'static, Sums<W>>, Abort> {
    W::client(rules, me, input.into(), seed)
}

/// The server of a sum with the invited clients `expected`: a vector of clients in a plain sum,
/// otherwise of clients and their rows.
///
/// # Errors
/// [`Abort::Misuse`] when the rules are impossible, or `expected` repeats a client or names the
/// server.
pub fn server<W: Word>(
    rules: Rules,
    expected: impl Into<Owners>,
) -> Result<Script<'static, Total<W>>, Abort> {
    W::server(rules, expected.into(), None)
}

/// Like [`server`], with words of the server's own. When the contributors are known, `own` returns
/// the words to add for them: as many as a client contributes. Every contributor gets its rows with
/// these words added. [`Total::shared`] contains them, too.
///
/// # Errors
/// As for [`server`]. The script aborts with [`Abort::Misuse`] when `own` returns another number of
/// words.
pub fn server_with<W: Word>(
    rules: Rules,
    expected: impl Into<Owners>,
    own: impl FnOnce(&[PartyId]) -> Vec<W> + Send + 'static,
) -> Result<Script<'static, Total<W>>, Abort> {
    W::server(rules, expected.into(), Some(Box::new(own)))
}
