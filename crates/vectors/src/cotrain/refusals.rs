//! Messages that a party must refuse.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::party::PartyId;

use super::Case;
use crate::Error;
use crate::refused::{Change, Refused, refused};

pub(super) fn refusals(cases: &[Case]) -> Result<Vec<InSession>, Error> {
    let cut: Change = |m| m.truncate(m.len() - 1);
    let more: Change = |m| m.push(1);
    // The case, the session, whether from client 1, the number of the frame, the change.
    let bad: [(&str, usize, usize, bool, usize, Change); 27] = [
        // FEDCT-1.
        ("an opening that is cut", 0, 0, false, 0, cut),
        ("an opening of a third kind", 0, 0, false, 0, |m| m[0] = 2),
        ("members out of order", 0, 0, false, 0, |m| m[9] = 3),
        ("a consensus flag of 2", 0, 0, false, 0, |m| m[21] = 2),
        ("a label beyond the classes", 0, 1, false, 0, |m| m[22] |= 7),
        // FEDCT-2.
        ("an opening without the client", 0, 0, false, 0, |m| {
            m[5] -= 1;
            m.drain(13..17);
        }),
        // FEDCT-3.
        ("votes that are cut", 0, 0, true, 0, cut),
        ("a vote beyond the classes", 0, 0, true, 0, |m| m[0] |= 7),
        ("flipped votes with a byte too many", 1, 0, true, 0, more),
        // FEDCT-4.
        ("a message after the votes", 2, 0, true, 0, more),
        // FEDCT-5.
        ("an exchange that is over", 0, 1, false, 0, |m| m[1] = 1),
        ("an exchange too many", 0, 0, false, 0, |m| m[1] = 11),
        // FEDCT-6.
        ("a plan that is cut", 3, 0, false, 3, cut),
        ("a plan with too many slices", 3, 0, false, 3, |m| m[0] = 4),
        ("a slice twice", 3, 0, false, 3, |m| m[12] = 0),
        // FEDCT-7.
        ("a plan that lacks a slice", 3, 0, false, 3, |m| {
            m[0] = 2;
            m.truncate(20);
        }),
        ("a helper that is no client", 3, 0, false, 3, |m| m[8] = 9),
        (
            "a second plan for a client's own slice",
            3,
            0,
            false,
            7,
            |m| {
                *m = [1, 1, 2]
                    .iter()
                    .flat_map(|n: &u32| n.to_le_bytes())
                    .collect();
            },
        ),
        // FEDCT-8.
        (
            "a setup that leaves a contributor out",
            5,
            0,
            false,
            2,
            |m| {
                m[2] = 0;
                m.truncate(m.len() - 48);
            },
        ),
        // FEDCT-9.
        ("a message after the sum", 3, 0, true, 7, more),
        // FEDCT-10.
        ("a consensus that is cut", 3, 0, false, 15, cut),
        ("a consensus beyond the classes", 3, 0, false, 15, |m| {
            m[0] |= 7
        }),
        // Step 1b.
        ("an exchange of one client", 3, 0, false, 0, |m| {
            m[5] = 1;
            m.drain(17..21);
            m.drain(9..13);
        }),
        // GARBLE-1, GARBLE-3, GARBLE-4.
        ("changes that are cut", 3, 0, false, 14, cut),
        ("another circuit", 3, 0, true, 14, |m| m[0] ^= 1),
        ("a tile that is cut", 3, 0, true, 15, cut),
        // OT-10.
        ("a false proof", 3, 0, false, 13, |m| m[20] ^= 1),
    ];
    let (server, client) = (PartyId::SERVER, PartyId::client(1));
    let mut refusals = Vec::new();
    for (comment, case, session, up, nth, change) in bad {
        let link = if up {
            (client, server, nth)
        } else {
            (server, client, nth)
        };
        let refused = refused(comment, case, link, change, |network| {
            cases[case].refusal(session, network)
        });
        refusals.push(InSession {
            session,
            refused: refused?,
        });
    }
    Ok(refusals)
}

/// A refused message in one session of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InSession {
    /// The session, from 0.
    session: usize,
    #[serde(flatten)]
    refused: Refused,
}
