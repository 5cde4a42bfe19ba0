//! What was judged in, the tables for people out.

use super::Evaluated;
use crate::estimate::Estimate;
use crate::evaluation::Metrics;
use crate::facade::{How, Judged, Outcome, Row, Scores};

/// The widest name of a row, in characters.
const WIDEST: usize = 19;

impl Evaluated {
    pub(super) fn text(&self) -> String {
        let Judged { contexts, halves, split, slate_size, step, note, start, .. } = &self.judged;
        let of_each =
            if *halves > 1 { format!(", {halves} halves of each") } else { String::new() };
        let mut text = format!(
            "{}, {contexts} {split} users{of_each}, K = {slate_size}, {} retrieval\n",
            self.run.display(),
            if self.judged.through_index { "index" } else { "exact" },
        );
        let mut rows = vec![
            (format!("policy, step {step}"), self.judged.scores.text()),
            ("its step 0".into(), format!("{}  {}", start.text(), self.judged.gain)),
        ];
        rows.extend(self.judged.against.iter().map(|row| (row.label(), row.outcome.text())));
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        text += &format!(
            "{:width$}  {:>15}  {:>6}  {:>6}  {:>6}  {:>9}  policy − row, 95 % interval\n",
            "", "reward", "nDCG", "recall", "hits", "catalogue"
        );
        for (name, scores) in &rows {
            text += format!("{name:width$}  {scores}").trim_end();
            text += "\n";
        }
        let names: Vec<&String> = rows.iter().map(|(name, _)| name).collect();
        text += &self.metrics_at(&names, width);
        let own = note.map(|note| format!("policy: {note}"));
        let notes: Vec<String> =
            own.into_iter().chain(self.judged.against.iter().filter_map(Row::notes)).collect();
        if !notes.is_empty() {
            text += &format!("\n{}", notes.join("\n"));
        }
        text
    }

    /// The table of the metrics asked for, if any are, of the rows with these names.
    fn metrics_at(&self, names: &[&String], width: usize) -> String {
        if self.asked.is_empty() {
            return String::new();
        }
        let mut text = format!("\n{:width$}", "");
        self.asked.iter().for_each(|asked| text += &format!("  {asked:>9}"));
        let Judged { scores, start, against, .. } = &self.judged;
        let rows = against.iter().map(|row| row.outcome.scores());
        let rows = [Some(scores), Some(start)].into_iter().chain(rows);
        for (name, scores) in names.iter().zip(rows) {
            text += &format!("\n{name:width$}");
            for asked in &self.asked {
                let value = scores.and_then(|scores| scores.metrics_at.get(asked));
                let value = value.map_or_else(|| "N/A".into(), |value| format!("{value:.4}"));
                text += &format!("  {value:>width$}", width = asked.len().max(9));
            }
        }
        text + "\n"
    }
}

impl Scores {
    fn text(&self) -> String {
        let Metrics { ndcg, recall, hit_rate, catalogue_coverage } = self.metrics;
        let reward = Estimate { mean: self.reward, standard_error: self.reward_se }.to_string();
        let catalogue = 100.0 * catalogue_coverage;
        format!("{reward:>15}  {ndcg:>6.4}  {recall:>6.4}  {hit_rate:>6.4}  {catalogue:>7.2} %")
    }
}

impl Outcome {
    fn scores(&self) -> Option<&Scores> {
        match self {
            Self::Judged { scores, .. } => Some(scores),
            Self::Refused { .. } => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Judged { scores, difference } => format!("{}  {difference}", scores.text()),
            Self::Refused { .. } => format!("{:>15}", "N/A"),
        }
    }
}

impl Row {
    /// The end of a name that is too long for the table.
    fn label(&self) -> String {
        let step = match self.how {
            How::Run { step } => format!(", step {step}"),
            How::Baseline { .. } => String::new(),
        };
        let name: Vec<char> = (self.name.clone() + &step).chars().collect();
        match name.len().checked_sub(WIDEST) {
            None | Some(0) => name.iter().collect(),
            Some(cut) => std::iter::once('…').chain(name[cut + 1..].iter().copied()).collect(),
        }
    }

    /// How a baseline was fitted or why it was not, and whether these users chose anything.
    fn notes(&self) -> Option<String> {
        let name = &self.name;
        let How::Baseline { settings, tried, seconds } = &self.how else {
            return self.note.as_ref().map(|note| format!("{}: {note}", self.label()));
        };
        if let Outcome::Refused { refused } = &self.outcome {
            return Some(format!("{name}: N/A: {refused}"));
        }
        let settings = settings.to_string();
        if settings.is_empty() {
            return None;
        }
        let best = tried.iter().filter_map(|trial| trial.reward).reduce(f64::max);
        let mut text = match best {
            None => format!("{name}: {settings} (not tuned: --tune SECONDS), {seconds:.1} s"),
            Some(best) => {
                let count = tried.len();
                format!(
                    "{name}: {settings}, validation reward {best:.4}, the best of {count} tried in {seconds:.1} s"
                )
            }
        };
        if let Some(note) = &self.note {
            text += &format!("; {note}");
        }
        Some(text)
    }
}
