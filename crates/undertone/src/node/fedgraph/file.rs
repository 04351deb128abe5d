//! Job files of the application `fedgraph`.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_fedgraph::{self as fedgraph, Predict};
use undertone_node::{Facts, JobError, deadlines};
use undertone_sum::Suite;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The parameters.
    pub fedgraph: fedgraph::Job,
}

/// The fields of a job file and of an offer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    clients: Option<usize>,
    rows: usize,
    queries: usize,
    classes: usize,
    width: usize,
    cluster: usize,
    clustering: String,
    /// By default as many as a graph network that predicts needs, and none for a vote.
    steps: Option<u32>,
    rate: f64,
    cut: String,
    predict: String,
    reveal_embeddings: bool,
    checkpoint: u32,
    suite: String,
}

impl Default for File {
    fn default() -> Self {
        let mut file = Self::of(&fedgraph::Job::new(0, 0, 0, 0));
        (file.clients, file.steps) = (None, None);
        file
    }
}

/// Reads the value of the field `name`.
fn parsed<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, JobError> {
    text.parse()
        .map_err(|why| JobError(format!("{name}: {why}")))
}

impl File {
    fn of(job: &fedgraph::Job) -> Self {
        Self {
            clients: Some(job.clients),
            rows: job.rows,
            queries: job.queries,
            classes: job.classes,
            width: job.width,
            cluster: job.cluster,
            clustering: job.clustering.to_string(),
            steps: Some(job.steps),
            rate: job.rate,
            cut: job.cut.to_string(),
            predict: job.predict.to_string(),
            reveal_embeddings: job.reveal_embeddings,
            checkpoint: job.every,
            suite: job.suite.to_string(),
        }
    }

    fn job(&self, clients: usize) -> Result<Job, JobError> {
        for (name, value) in [("rows", self.rows), ("classes", self.classes)] {
            if value == 0 {
                return Err(JobError::new(format!("{name} is missing")));
            }
        }
        let new = fedgraph::Job::new(clients, self.rows, self.queries, self.classes);
        let predict: Predict = parsed("predict", &self.predict)?;
        let steps = if predict == Predict::Graph {
            new.steps
        } else {
            0
        };
        let job = fedgraph::Job {
            width: self.width,
            cluster: self.cluster,
            clustering: parsed("clustering", &self.clustering)?,
            steps: self.steps.unwrap_or(steps),
            rate: self.rate,
            cut: parsed("cut", &self.cut)?,
            predict,
            reveal_embeddings: self.reveal_embeddings,
            every: self.checkpoint,
            suite: parsed::<Suite>("suite", &self.suite)?,
            ..new
        };
        job.check().map_err(JobError)?;
        Ok(Job { fedgraph: job })
    }
}

impl Job {
    /// Reads a job file for a roster of so many clients. What it leaves out has its default.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong, and where.
    pub fn parse(text: &str, clients: usize) -> Result<Self, JobError> {
        let file = deadlines::parameters::<File>(text)?;
        match file.clients {
            Some(stated) if stated != clients => Err(JobError(format!(
                "clients is {stated}, the roster has {clients}; all clients of the roster take \
                 part: leave the field out, or change the roster"
            ))),
            _ => file.job(clients),
        }
    }

    /// The offer to clients: a job file with every setting.
    pub fn to_offer(&self) -> Vec<u8> {
        let file = File::of(&self.fedgraph);
        toml::to_string(&file).unwrap_or_default().into()
    }

    /// Reads what [`Job::to_offer`] writes.
    ///
    /// # Errors
    /// A [`JobError`] that says what is wrong.
    pub fn from_offer(bytes: &[u8]) -> Result<Self, JobError> {
        let text = std::str::from_utf8(bytes).map_err(JobError::new)?;
        let file = deadlines::parameters::<File>(text)?;
        let clients = file.clients;
        file.job(clients.ok_or_else(|| JobError::new("clients is missing"))?)
    }

    /// The parameters, for display.
    pub fn facts(&self) -> Facts {
        let job = &self.fedgraph;
        Facts::from_iter([
            ("clients".to_owned(), job.clients.into()),
            ("rows".to_owned(), job.rows.into()),
            ("queries".to_owned(), job.queries.into()),
            ("classes".to_owned(), job.classes.into()),
            ("width".to_owned(), job.width.into()),
            ("cluster".to_owned(), job.cluster.into()),
            ("clustering".to_owned(), job.clustering.to_string().into()),
            ("steps".to_owned(), job.steps.into()),
            ("rate".to_owned(), job.rate.into()),
            ("cut".to_owned(), job.cut.to_string().into()),
            ("predict".to_owned(), job.predict.to_string().into()),
            ("reveal_embeddings".to_owned(), job.reveal_embeddings.into()),
            ("checkpoint".to_owned(), job.every.into()),
            ("suite".to_owned(), job.suite.to_string().into()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use undertone_fedgraph::{Clustering, Cut};

    use super::*;

    const TEXT: &str = "application = \"fedgraph\"\nrows = 100\nqueries = 7\nclasses = 3\n";

    #[test]
    fn offers_are_job_files() {
        let more = "cut = \"server\"\nclustering = \"random\"\ncheckpoint = 9\n\
                    suite = \"chacha20\"\npredict = \"graph\"\nreveal_embeddings = true\n";
        let job = Job::parse(&format!("{TEXT}{more}"), 4).unwrap();
        let inner = &job.fedgraph;
        assert_eq!(
            (inner.clients, inner.every, inner.cluster, inner.width),
            (4, 9, 17, 64)
        );
        assert_eq!(
            (inner.cut, inner.clustering, inner.predict),
            (Cut::Server, Clustering::Random, Predict::Graph)
        );
        assert_eq!(Job::from_offer(&job.to_offer()).unwrap(), job);
        let usual = Job::parse(TEXT, 4).unwrap();
        // A network that predicts nothing is not trained.
        let new = fedgraph::Job::new(4, 100, 7, 3);
        assert_eq!(job.fedgraph.steps, new.steps);
        assert_eq!(usual.fedgraph, fedgraph::Job { steps: 0, ..new });
    }

    #[test]
    fn wrong_files_are_refused() {
        let refused = |more: &str| {
            let text = format!("{TEXT}{more}\n");
            Job::parse(&text, 4).unwrap_err().to_string()
        };
        assert!(refused("clients = 5").contains("the roster has 4"));
        assert!(refused("cut = \"middle\"").contains("cut: 'middle'"));
        assert!(refused("predict = \"both\"").contains("predict"));
        assert!(refused("checkpoint = 0").contains("every"));
        assert!(refused("cluster = 101").contains("cluster"));
        assert!(refused("step = 2").contains("step"));
        // FEDGRAPH-1.
        let graph = "cut = \"server\"\npredict = \"graph\"";
        assert!(refused(graph).contains("reveal_embeddings"));
        let missing = Job::parse("application = \"fedgraph\"\nclasses = 3", 4);
        assert!(missing.unwrap_err().to_string().contains("rows is missing"));
        let few = Job::parse(TEXT, 2).unwrap_err().to_string();
        assert!(few.contains("clients: 2"), "{few}");
        let offer = Job::from_offer(TEXT.as_bytes()).unwrap_err().to_string();
        assert!(offer.contains("clients is missing"), "{offer}");
    }
}
