//! Output of commands: standard output, files that appear whole or not at all, and a progress bar.

use std::fmt;
use std::io::{self, IsTerminal, Seek, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use npyz::{AutoSerialize, WriterBuilder};
use undertone::party::progress::{say, time_left};
use undertone::party::{At, Watch};

use crate::interrupt::TempFile;
use crate::{Failure, Show};

/// Prints to standard output. It is not an error if the reader has closed it.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unwritable(Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

/// Prints `report` as a JSON object to standard output.
pub fn print_json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::data(format!("report: {error}")))?;
    print(&format!("{json}\n"))
}

/// Prints `report` as JSON if `show` asks for it, and as `text` otherwise.
pub fn print_report(
    show: Show,
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if show.json {
        print_json(report)
    } else {
        print(&text())
    }
}

/// Creates a folder, and those above it, unless it exists.
pub fn create_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| Failure::unwritable(path, error))
}

/// Bytes that are written to see whether a file can be.
const PROBE: usize = 1 << 12;

/// A file that is opened before the work starts and appears at its path once it is whole.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: TempFile,
    /// Whether it may replace another file.
    replace: bool,
}

impl Output {
    /// Opens `path` for writing. Its folder must exist.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        Self::with_mode(path, 0o644, true)
    }

    /// Like [`create`](Self::create), for a file that only its owner may read.
    pub fn create_own(path: &Path) -> Result<Self, Failure> {
        Self::with_mode(path, 0o600, true)
    }

    /// Like [`create`](Self::create), for a file that must not exist yet.
    pub fn create_new(path: &Path) -> Result<Self, Failure> {
        Self::absent(path)?;
        Self::with_mode(path, 0o644, false)
    }

    /// Like [`create_new`](Self::create_new), for a file that only its owner may read.
    pub fn create_private(path: &Path) -> Result<Self, Failure> {
        Self::absent(path)?;
        Self::with_mode(path, 0o600, false)
    }

    /// Refuses a path at which there is something.
    pub fn absent(path: &Path) -> Result<(), Failure> {
        if path.exists() {
            let message = "it exists; keys are not overwritten";
            return Err(Failure::unwritable(path, message));
        }
        Ok(())
    }

    fn with_mode(path: &Path, mode: u32, replace: bool) -> Result<Self, Failure> {
        let unwritable = |error: &dyn std::fmt::Display| Failure::unwritable(path, error);
        if std::fs::metadata(path).is_ok_and(|held| !held.is_file()) {
            return Err(unwritable(&"it is a folder or a device; name a file"));
        }
        // The target of a symbolic link is written, and the link stays.
        let target = path.canonicalize();
        let path = target.as_deref().unwrap_or(path);
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".undertone-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        #[cfg(not(unix))]
        let _ = mode;
        let file = TempFile::new(|| {
            let mut file = builder.tempfile_in(folder)?;
            // A full disk still takes files without content.
            file.write_all(&[0; PROBE])?;
            file.as_file_mut().set_len(0)?;
            file.rewind()?;
            Ok(file)
        });
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unwritable(&"its folder does not exist"),
            kind => unwritable(&kind),
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            replace,
        })
    }

    /// Opens `name` in `folder`. Creates the folder if it does not exist.
    pub fn create_in(folder: &Path, name: &str) -> Result<Self, Failure> {
        create_folder(folder)?;
        Self::create(&folder.join(name))
    }

    /// Where the file will appear, symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `other` names the same file, perhaps by another path.
    pub fn is(&self, other: &Path) -> bool {
        place(&self.path) == place(other)
    }

    /// Writes the file with `fill`, then moves it to its place.
    pub fn write(
        mut self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut writer = io::BufWriter::new(self.file.as_file_mut());
        let written = fill(&mut writer).and_then(|()| writer.flush());
        drop(writer);
        written
            .and_then(|()| self.file.persist(&self.path, self.replace))
            .map_err(|error| Failure::unwritable(&self.path, error))
    }

    /// Writes a JSON object.
    pub fn json(self, object: &impl serde::Serialize) -> Result<(), Failure> {
        self.write(|writer| {
            serde_json::to_writer_pretty(&mut *writer, object)?;
            writeln!(writer)
        })
    }

    /// Writes an `.npy` array.
    pub fn npy<T: AutoSerialize>(self, shape: &[u64], values: &[T]) -> Result<(), Failure> {
        self.write(|writer| {
            let mut npy = npyz::WriteOptions::new()
                .default_dtype()
                .shape(shape)
                .writer(writer)
                .begin_nd()?;
            npy.extend(values)?;
            npy.finish()
        })
    }
}

/// The path without symbolic links and dots, as far as it exists.
fn place(path: &Path) -> PathBuf {
    if let Ok(whole) = path.canonicalize() {
        return whole;
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// A progress bar on standard error. It is hidden if that is no terminal, or with `--quiet`. It is
/// drawn when it is made and when it changes, so that no thread disturbs what is measured.
pub fn progress(steps: u64, show: Show) -> ProgressBar {
    bar(
        steps,
        "{spinner} {bar:30} {pos}/{len} {elapsed}{left} {msg}",
        "",
        show,
    )
}

/// Like [`progress`], for work of which shares are done: they are shown in per cent.
pub fn shares(parts: u64, show: Show) -> ProgressBar {
    bar(parts, "{spinner} {bar:30} {elapsed}{left} {msg}", "", show)
}

/// Shows on a bar what the parties of a run do.
pub fn observer(bar: &ProgressBar) -> impl FnMut(&At) {
    let mut watch = Watch::new();
    move |at| {
        watch.see(at);
        if !bar.is_hidden() {
            bar.set_message(watch.say());
        }
    }
}

/// Like [`progress`], for work whose steps cannot be counted: says what the command does.
pub fn working(what: &'static str, show: Show) -> ProgressBar {
    bar(1, "{spinner} {msg}", what, show)
}

/// ", 34 % done, about 12 s left", once a step is done.
fn left(state: &ProgressState, text: &mut dyn fmt::Write) {
    let share = f64::from(state.fraction());
    if share > 0.0 {
        // What cannot be written is not shown.
        let _ = write!(text, ", {}", say(share, time_left(state.elapsed(), share)));
    }
}

fn bar(steps: u64, template: &str, message: &'static str, show: Show) -> ProgressBar {
    if show.quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps).with_message(message);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("left", left));
    }
    bar.tick();
    bar
}
