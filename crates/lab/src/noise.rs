//! Noise on labels: the option and the description that several commands share.

use undertone::label::LabelNoise;

/// The argument of `--label-epsilon`.
pub fn epsilon(text: &str) -> Result<f64, String> {
    let epsilon: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number"))?;
    LabelNoise::check(epsilon).map_err(|error| error.to_string())?;
    Ok(epsilon)
}

/// What the noise does, for people.
pub fn describe(epsilon: f64, classes: usize) -> String {
    let kept = LabelNoise::kept(epsilon, classes);
    format!(
        "noise on labels, epsilon {epsilon}: {:.1} % of them are kept, the others become other \
         classes",
        100.0 * kept
    )
}
