//! What a command line without its model, or with one where none is read, is told beside what clap says. Knows no models.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What to say to a command line that lacks its model, beside what clap says.
pub fn hint(error: &clap::Error) -> Option<&'static str> {
    let said = error.render().to_string();
    match error.kind() {
        ErrorKind::MissingRequiredArgument => {}
        ErrorKind::UnknownArgument => {
            let given = error.get(ContextKind::InvalidArg);
            let is_word =
                matches!(given, Some(ContextValue::String(word)) if !word.starts_with('-'));
            let takes_one = said.contains("--model <");
            return (is_word && takes_one).then_some("A model is named with -m: -m smollm2.");
        }
        _ => return None,
    }
    match said.contains("--model") {
        true if said.contains("twoclock bench ") => Some(
            "`twoclock list` shows the models here and those that can be pulled; --model-config llama-3-8b \
             benches that shape with random weights.",
        ),
        true => Some("`twoclock list` shows the models here and those that can be pulled."),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn who_names_no_model_is_told_where_they_are() {
        let said = |line: &[&str]| hint(&Cli::try_parse_from(line).unwrap_err());
        let told = said(&["twoclock", "run"]).unwrap();
        assert!(told.contains("twoclock list") && !told.contains("--model-config"));
        assert!(
            said(&["twoclock", "bench"])
                .unwrap()
                .contains("--model-config")
        );
        assert_eq!(said(&["twoclock", "bench-serve"]), None);
        assert_eq!(said(&["twoclock", "run", "--nonsense"]), None);
        for command in ["serve", "run"] {
            let told = said(&["twoclock", command, "smollm2"]).unwrap();
            assert!(told.contains("-m smollm2"), "{told}");
        }
        assert_eq!(said(&["twoclock", "list", "smollm2"]), None);
    }
}
