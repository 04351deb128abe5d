//! The server: it finds distances from answers and openings.

use undertone_kernel::pack;

use crate::params::Params;

/// What the server knows of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// The parameters.
    pub params: &'static Params,
    /// Bits of a code. A distance is at most this.
    pub bits: usize,
}

impl Decoder {
    /// Step 7: the distances of some rows of the evaluator and a block of the key owner's rows,
    /// from the answers and the openings of each pair of rows, packed row by row. `left` and
    /// `right` are the parities of the rows, one in each byte.
    ///
    /// The second result is the number of distances above `bits` (LWE-13). They are `bits`. Parties
    /// that follow the protocol have none.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn distances(
        &self,
        left: &[u8],
        right: &[u8],
        answers: &[u8],
        openings: &[u8],
    ) -> (Vec<u16>, u64) {
        let params = self.params;
        let each = params.answer_len(right.len());
        assert_eq!(answers.len(), left.len() * each, "answers");
        assert_eq!(openings.len(), left.len() * each, "openings");
        let (v, t, minus_q) = (params.v, params.t, params.minus_q());
        let most = self.bits as u64;
        let [mut given, mut opened] = [0, 1].map(|_| vec![0u64; right.len()]);
        let mut out = Vec::with_capacity(left.len() * right.len());
        let mut above = 0;
        let rows = answers.chunks_exact(each).zip(openings.chunks_exact(each));
        for ((answers, openings), left) in rows.zip(left) {
            pack::unpack_words(v, answers, &mut given);
            pack::unpack_words(v, openings, &mut opened);
            out.extend(given.iter().zip(&opened).zip(right).map(|((a, b), right)| {
                let z = a.wrapping_sub(*b) & ((1 << v) - 1);
                let residue = params.modulo_t(minus_q * ((z * t + (1 << (v - 1))) >> v));
                let odd = u64::from(left ^ right) ^ residue & 1;
                let distance = residue + (t & odd.wrapping_neg());
                above += u64::from(distance > most);
                distance.min(most) as u16
            }));
        }
        (out, above)
    }
}
