//! Stop strings in a text that comes in pieces. Knows no token and no request.

/// Looks for the first of some strings, and holds back what may yet become one.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    include: bool,
    held: String,
}

/// What a piece of text brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Text that became certain.
    pub text: String,
    /// Which of the stop strings ends the text here.
    pub at: Option<usize>,
}

impl StopStrings {
    /// Looks for these, none of which is empty; `include` leaves the one that is found in the text.
    pub fn new(stops: &[String], include: bool) -> Self {
        Self {
            stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(),
            include,
            held: String::new(),
        }
    }

    /// Takes the next piece. Of the strings it completes, the one that begins first ends the text; of
    /// those, the one given first. Nothing comes after.
    pub fn push(&mut self, piece: &str) -> Stopped {
        self.held.push_str(piece);
        let found = self.stops.iter().enumerate().filter_map(|(which, stop)| {
            let begin = self.held.find(stop.as_str())?;
            Some((begin, which, begin + stop.len()))
        });
        if let Some((begin, which, end)) = found.min() {
            self.held.truncate(if self.include { end } else { begin });
            return Stopped {
                text: std::mem::take(&mut self.held),
                at: Some(which),
            };
        }
        let longest = self.stops.iter().map(|stop| self.open(stop)).max();
        let certain = self.held.len() - longest.unwrap_or(0);
        let open = self.held.split_off(certain);
        Stopped {
            text: std::mem::replace(&mut self.held, open),
            at: None,
        }
    }

    /// The string of that number.
    pub fn string(&self, which: usize) -> Option<&str> {
        self.stops.get(which).map(String::as_str)
    }

    /// What is held back when no more comes: it became none of them.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of what is held that may become `stop`.
    fn open(&self, stop: &str) -> usize {
        let starts = stop.char_indices().map(|(at, _)| at).rev();
        let mut starts = starts.filter(|at| *at > 0 && *at <= self.held.len());
        starts
            .find(|at| self.held.ends_with(&stop[..*at]))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(stops: &[&str], include: bool) -> StopStrings {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        StopStrings::new(&stops, include)
    }

    #[test]
    fn what_may_become_a_stop_waits() {
        let mut stream = stops(&["</s>", "\n\n"], false);
        assert_eq!(stream.push("a<").text, "a");
        assert_eq!(stream.push("/x\n").text, "</x");
        assert_eq!(stream.push("b").text, "\nb");
        let end = stream.push("c</s>\n\nd");
        assert_eq!((end.text.as_str(), end.at), ("c", Some(0)));
        let mut stream = stops(&["十二"], true);
        assert_eq!(stream.push("は十").text, "は");
        let end = stream.push("二時");
        assert_eq!((end.text.as_str(), end.at), ("十二", Some(0)));
        let mut stream = stops(&["ab"], false);
        assert_eq!(stream.push("xa").text, "x");
        assert_eq!(stream.finish(), "a");
    }

    proptest! {
        #[test]
        fn nothing_of_a_stop_is_let_out(
            pieces in prop::collection::vec("[abé]{0,3}", 0..12),
            words in prop::collection::vec("[abé]{1,4}", 0..3),
        ) {
            let whole = pieces.concat();
            let first = words.iter().filter_map(|word| whole.find(word.as_str())).min();
            let mut stream = StopStrings::new(&words, false);
            let mut text = String::new();
            let mut ended = false;
            for piece in &pieces {
                let next = stream.push(piece);
                text.push_str(&next.text);
                if next.at.is_some() {
                    ended = true;
                    break;
                }
            }
            if !ended {
                text.push_str(&stream.finish());
            }
            // A string that begins later may be complete earlier; nothing of it was let out.
            prop_assert_eq!(ended, first.is_some());
            prop_assert!(words.iter().all(|word| !text.contains(word.as_str())));
            prop_assert!(whole.starts_with(&text));
            prop_assert!(text.len() <= whole.len());
            if let Some(first) = first {
                prop_assert!(text.len() >= first);
            } else {
                prop_assert_eq!(text, whole);
            }
        }
    }
}
