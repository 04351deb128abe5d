//! Which answers a record allows.

use std::collections::BTreeMap;

use super::claim::{Refusal, What};
use super::shown::{date, dates, names};
use super::state::{Allowed, Answer, Kept, Run, State, Sum, Tag, Who};

/// Most sessions of label propagation with one record: each shows the server the distances of the
/// same rows more precisely.
pub(super) const MAX_LABEL: usize = 3;

/// Most censuses of training before the first round: a server that repeats them could look for
/// groups of its own clients.
pub(super) const MAX_CENSUSES: usize = 3;

/// A claim in terms of the record.
pub(super) struct Asked {
    pub(super) at: u64,
    pub(super) run: Run,
    pub(super) job: [u8; 32],
    pub(super) ask: Ask,
}

/// What is asked.
pub(super) enum Ask {
    /// An answer of its own.
    Note(Kept),
    /// A round after a census.
    Round {
        census: [u8; 32],
        me: u32,
        number: u32,
    },
}

/// What follows from a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was made before. Nothing changes.
    Known,
    /// It is noted.
    New,
    /// It would be allowed.
    Checked,
}

/// A refusal that the owner can allow.
fn refuse(name: &str, what: What, why: &str) -> Refusal {
    Refusal {
        why: format!("record {name}: {why}"),
        what: Some(what),
    }
}

/// The clients that are in `these` and not in `others`.
fn only(
    these: &BTreeMap<String, String>,
    others: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut only = these.clone();
    only.retain(|key, _| !others.contains_key(key));
    only
}

/// A fault that an allowance mends.
struct Fault {
    what: What,
    why: String,
}

impl Fault {
    fn new(what: What, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { what, why }
    }
}

impl State {
    /// Judges a claim, and notes it. A refused claim changes nothing.
    pub(super) fn claim(&mut self, name: &str, asked: Asked) -> Result<Verdict, Refusal> {
        if self.has(&asked) {
            return Ok(Verdict::Known);
        }
        let faults = self.faults(&asked);
        let named = |refusal: Refusal| Refusal::new(format!("record {name}: {}", refusal.why));
        let faults = faults.map_err(named)?;
        let mut used = Vec::new();
        for fault in &faults {
            let allowance = self.allowance(fault.what, asked.run);
            used.push(allowance.ok_or_else(|| refuse(name, fault.what, &fault.why))?);
        }
        for place in used {
            self.allowed[place].used = Some(asked.run);
        }
        if !faults.is_empty() {
            self.begin_anew(&asked);
        }
        self.note(asked);
        Ok(Verdict::New)
    }

    /// Whether the same claim was made in the same session with the same seed.
    fn has(&self, asked: &Asked) -> bool {
        self.open().any(|answer| match (&answer.kept, &asked.ask) {
            (Kept::Census { last, round, .. }, Ask::Round { census, number, .. }) => {
                answer.run.session == *census && last == number && *round == Some(asked.run)
            }
            (
                Kept::Census { me, who, .. },
                Ask::Note(Kept::Census {
                    me: now,
                    who: counted,
                    state,
                    ..
                }),
            ) if state.is_empty() => answer.run == asked.run && me == now && who == counted,
            (kept, Ask::Note(due)) => answer.run == asked.run && kept == due,
            _ => false,
        })
    }

    /// What speaks against a claim and can be allowed.
    fn faults(&self, asked: &Asked) -> Result<Vec<Fault>, Refusal> {
        let kept = match &asked.ask {
            Ask::Round { census, me, number } => {
                self.check_round(*census, *me, *number)?;
                return Ok(Vec::new());
            }
            Ask::Note(kept) => kept,
        };
        let fault = match kept {
            Kept::Label { who } => {
                let faults = [
                    self.other_clients(Sum::Labels, who),
                    self.many_sessions(asked.run),
                ];
                return Ok(faults.into_iter().flatten().collect());
            }
            Kept::Opened { of, who } => self.other_clients(*of, who),
            Kept::Sent { values } => self.sent_before(*values),
            Kept::Census { who, .. } => self.census_again(asked.run, who.as_ref()),
            Kept::Vote { number } => self.vote_again(asked.job, *number)?,
            Kept::Pairs => self.compared_before(),
            Kept::Graph { who, run } => self.other_graph(who, *run),
        };
        Ok(fault.into_iter().collect())
    }

    // RECORD-10.
    fn vote_again(&self, job: [u8; 32], number: u32) -> Result<Option<Fault>, Refusal> {
        for answer in self.open() {
            let Kept::Vote { number: last } = answer.kept else {
                continue;
            };
            if answer.job != job {
                return Ok(Some(Fault::new(
                    What::NewJob,
                    format!(
                        "these rows voted in another co-training job on {}; more votes show more \
                         about them than either job states",
                        date(answer.at)
                    ),
                )));
            }
            if number <= last {
                return Err(Refusal::new(format!(
                    "these rows voted in exchange {last}; the server asks for exchange {number}: a \
                     vote with fresh noise would undo the noise of the first"
                )));
            }
        }
        Ok(None)
    }

    // RECORD-11.
    fn compared_before(&self) -> Option<Fault> {
        let earlier = self.open().find(|answer| answer.kept == Kept::Pairs)?;
        Some(Fault::new(
            What::Again,
            format!(
                "these rows were compared with those of other clients on {}; a second graph would \
                 show further edges with the same clients",
                date(earlier.at)
            ),
        ))
    }

    /// A sum over other clients than those of an earlier one (RECORD-6).
    fn other_clients(&self, of: Sum, who: &Who) -> Option<Fault> {
        let opened: Vec<(&Answer, &Who)> = self
            .open()
            .filter_map(|answer| match &answer.kept {
                Kept::Opened { of: other, who } if *other == of => Some((answer, who)),
                _ => None,
            })
            .collect();
        let (answer, earlier) = *opened.last()?;
        if opened.iter().any(|(_, earlier)| earlier.is(who)) {
            return None;
        }
        let (what, sum, shows) = match of {
            Sum::Labels => (What::Contributors, "labels", "class counts"),
            Sum::Scale => (What::Contributors, "features", "means"),
            Sum::Values(_) => (What::Values, "values", "values"),
        };
        let on = date(answer.at);
        let why = match (earlier, who) {
            (Who::Known(earlier), Who::Known(now)) => {
                let added = names(&only(now, earlier));
                let change = match names(&only(earlier, now)) {
                    gone if gone.is_empty() => format!("adds {added}"),
                    gone if added.is_empty() => format!("lacks {gone}"),
                    gone => format!("has {added} in place of {gone}"),
                };
                format!(
                    "its {sum} were added up with those of {} on {on}; this job {change}. The \
                     difference could show {shows} of single clients. Let the same clients take \
                     part",
                    names(earlier)
                )
            }
            _ => format!(
                "its {sum} were added up with those of other clients on {on}, and without a roster \
                 of keys nobody knows whether they are the same. If they are not, the difference \
                 could show {shows} of single clients"
            ),
        };
        Some(Fault::new(what, why))
    }

    // RECORD-5.
    fn many_sessions(&self, run: Run) -> Option<Fault> {
        let earlier: Vec<&Answer> = self
            .open()
            .filter(|answer| matches!(answer.kept, Kept::Label { .. }) && answer.run != run)
            .collect();
        (earlier.len() >= MAX_LABEL).then(|| {
            let dates = dates(earlier.iter().map(|answer| answer.at));
            Fault::new(
                What::Session,
                format!(
                    "these rows were in {} jobs of label propagation ({dates}). Each shows the \
                     server their distances more precisely",
                    earlier.len()
                ),
            )
        })
    }

    // RECORD-7.
    fn sent_before(&self, values: Tag) -> Option<Fault> {
        let due = Kept::Sent { values };
        let earlier = self.open().find(|answer| answer.kept == due)?;
        Some(Fault::new(
            What::Values,
            format!(
                "exactly these values were sent on {}; two sums of the same values, one with \
                 another client and one without it, show that client's values",
                date(earlier.at)
            ),
        ))
    }

    // RECORD-8.
    fn census_again(&self, run: Run, who: Option<&Who>) -> Option<Fault> {
        let mut earlier = Vec::new();
        for answer in self.open() {
            let Kept::Census {
                who: counted, last, ..
            } = &answer.kept
            else {
                continue;
            };
            if answer.run == run {
                continue;
            }
            if *last > 0 {
                return Some(Fault::new(
                    What::NewJob,
                    format!(
                        "these rows were in round {last} of a training job of {}. Another job has \
                         other groups, and shows other sums of this client's updates",
                        date(answer.at)
                    ),
                ));
            }
            if let (Some(counted), Some(who)) = (counted, who)
                && !counted.is(who)
            {
                return Some(Fault::new(
                    What::NewJob,
                    format!(
                        "its labels were counted with those of other clients on {}; the difference \
                         of the counts would show those of single clients",
                        date(answer.at)
                    ),
                ));
            }
            earlier.push(answer.at);
        }
        (earlier.len() >= MAX_CENSUSES).then(|| {
            Fault::new(
                What::NewJob,
                format!(
                    "these rows were in {} censuses of training without a round ({}). A server \
                     that repeats them can look for groups of its own clients",
                    earlier.len(),
                    dates(earlier.into_iter())
                ),
            )
        })
    }

    // RECORD-9.
    fn check_round(&self, session: [u8; 32], me: u32, number: u32) -> Result<(), Refusal> {
        let refused = |why: String| Err(Refusal::new(why));
        let Some(census) = self.census() else {
            return refused(
                "it knows no census of training: this client was not there when the job began, or \
                 its record is lost; it can join the next job"
                    .into(),
            );
        };
        if census.session.0 != session || census.me.to_wire() != me {
            return refused(
                "the round belongs to another census than the last one in which these rows were, \
                 or gives this client another number"
                    .into(),
            );
        }
        if number <= census.last {
            return refused(format!(
                "these rows were in round {}; the server asks for round {number}: two sums of one \
                 round that differ by a client would reveal that client's update",
                census.last
            ));
        }
        Ok(())
    }

    // RECORD-12.
    fn other_graph(&self, who: &Who, run: Option<Tag>) -> Option<Fault> {
        for answer in self.open() {
            let Kept::Graph {
                who: earlier,
                run: begun,
            } = &answer.kept
            else {
                continue;
            };
            let on = date(answer.at);
            if !earlier.is(who) {
                return Some(Fault::new(
                    What::Again,
                    format!(
                        "these rows were in a graph network with other clients on {on}; the \
                         difference would show what single clients add"
                    ),
                ));
            }
            if let (Some(begun), Some(run)) = (begun, run)
                && *begun != run
            {
                return Some(Fault::new(
                    What::Again,
                    format!(
                        "a graph network over these rows was begun on {on}; another one, with \
                         other clusters of the same rows, would tell more about them. To go on \
                         with that one, keep its checkpoint"
                    ),
                ));
            }
        }
        None
    }

    /// The allowance that this session has used, or one that is left.
    fn allowance(&self, what: What, run: Run) -> Option<usize> {
        let of = |used: Option<Run>| {
            let mut these = self.allowed.iter();
            these.position(|allowed| allowed.what == what && allowed.used == used)
        };
        of(Some(run)).or_else(|| of(None))
    }

    /// Uses an allowance outside of sessions, if there is one.
    pub(super) fn use_up(&mut self, what: What) -> bool {
        let mut left = self.allowed.iter_mut();
        let left = left.find(|allowed| allowed.what == what && allowed.used.is_none());
        left.map(|allowed| allowed.used = Some(Run::NONE)).is_some()
    }

    /// What was allowed takes the place of what was answered before.
    fn begin_anew(&mut self, asked: &Asked) {
        let Ask::Note(kept) = &asked.ask else { return };
        for answer in &mut self.answers {
            answer.closed |= matches!(
                (kept, &answer.kept),
                (Kept::Census { .. }, Kept::Census { .. })
                    | (Kept::Vote { .. }, Kept::Vote { .. })
                    | (Kept::Pairs, Kept::Pairs)
                    | (Kept::Graph { .. }, Kept::Graph { .. })
            );
        }
    }

    fn note(&mut self, asked: Asked) {
        let Asked { at, run, job, ask } = asked;
        let open = self
            .answers
            .iter_mut()
            .rev()
            .filter(|answer| !answer.closed);
        let kept = match ask {
            // A round belongs to the answer of its census.
            Ask::Round { census, number, .. } => {
                for answer in open.filter(|answer| answer.run.session == census) {
                    if let Kept::Census { last, round, .. } = &mut answer.kept {
                        (*last, *round) = (number, Some(run));
                        return;
                    }
                }
                return;
            }
            Ask::Note(kept) => kept,
        };
        for answer in open {
            let is_last = match (&mut answer.kept, &kept) {
                (Kept::Census { last, .. }, Kept::Census { .. }) => answer.run == run && *last == 0,
                // Of votes and graphs the last one says it all.
                (Kept::Vote { .. }, Kept::Vote { .. }) => true,
                (Kept::Graph { run: begun, .. }, Kept::Graph { run: now, .. }) => {
                    if now.is_none() {
                        // Training stays begun.
                        answer.run = run;
                        return;
                    }
                    begun.is_none() || begun == now
                }
                _ => false,
            };
            if is_last {
                (answer.at, answer.run, answer.kept) = (at, run, kept);
                return;
            }
        }
        self.answers.push(Answer {
            at,
            run,
            job,
            kept,
            closed: false,
        });
    }

    /// Lets the owner allow `what` once.
    pub(super) fn permit(&mut self, at: u64, what: What, reason: &str) {
        self.allowed.push(Allowed {
            at,
            what,
            reason: reason.to_owned(),
            used: None,
        });
    }
}
