//! A device in a file: one JSON object, read field by field so that whatever is wrong is said in words
//! of the file. Knows no device by name.

use serde_json::{Map, Value};
use thiserror::Error;
use twoclock_core::sched::{Hardware, HardwareError, PerRegime};

use crate::output;

/// What a file looks like.
pub const EXAMPLE: &str = r#"{"bandwidth": 2.7e12, "flops": {"gemv": 3e13, "skinny": 3e14, "gemm": 6e14}, "memory": 8e10,
   "step_overhead": 2e-4, "dispatch_overhead": 2e-6, "host_bandwidth": 5e10}"#;

/// A file that describes no device.
#[derive(Debug, Error)]
pub enum DeviceFileError {
    /// No JSON.
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but no object.
    #[error("it must be one JSON object, as {EXAMPLE}")]
    NoObject,
    /// A field that is not there.
    #[error("{field} is missing; it must be {must}")]
    Missing {
        /// Which.
        field: String,
        /// What would do.
        must: &'static str,
    },
    /// A field of another kind.
    #[error("{field} is {found}; it must be {must}")]
    Kind {
        /// Which.
        field: String,
        /// What it is, in JSON.
        found: String,
        /// What would do.
        must: &'static str,
    },
    /// A field there is none of.
    #[error("there is no field {field:?}; there are {there}")]
    Unknown {
        /// Which.
        field: String,
        /// Those there are.
        there: String,
    },
    /// A number no device has.
    #[error(transparent)]
    Value(#[from] HardwareError),
}

const FIELDS: [&str; 6] = [
    "bandwidth",
    "flops",
    "step_overhead",
    "dispatch_overhead",
    "memory",
    "host_bandwidth",
];
const REGIMES: [&str; 3] = ["gemv", "skinny", "gemm"];

/// The device that a file's text describes.
///
/// # Errors
/// [`DeviceFileError`], naming the field and what it must be.
pub fn parse(text: &str) -> Result<Hardware, DeviceFileError> {
    let value: Value = serde_json::from_str(text)?;
    let object = value.as_object().ok_or(DeviceFileError::NoObject)?;
    known(object, "", &FIELDS)?;
    let seconds = "a number of seconds";
    let hardware = Hardware {
        bandwidth: number(object, "", "bandwidth", "a number of bytes a second")?,
        flops: flops(object)?,
        step_overhead: number(object, "", "step_overhead", seconds)?,
        dispatch_overhead: number(object, "", "dispatch_overhead", seconds)?,
        memory: memory(object)?,
        host_bandwidth: number(object, "", "host_bandwidth", "a number of bytes a second")?,
    };
    hardware.check()?;
    Ok(hardware)
}

/// One number for all regimes, or one for each.
fn flops(object: &Map<String, Value>) -> Result<PerRegime, DeviceFileError> {
    let must = "a number of operations a second, or an object of three: gemv (up to 8 tokens a \
                step), skinny (up to 64) and gemm (more)";
    let value = field(object, "", "flops", must)?;
    if let Some(all) = value.as_f64() {
        return Ok(PerRegime {
            gemv: all,
            skinny: all,
            gemm: all,
        });
    }
    let each = value
        .as_object()
        .ok_or_else(|| kind("flops", value, must))?;
    known(each, "flops.", &REGIMES)?;
    let must = "a number of operations a second";
    Ok(PerRegime {
        gemv: number(each, "flops.", "gemv", must)?,
        skinny: number(each, "flops.", "skinny", must)?,
        gemm: number(each, "flops.", "gemm", must)?,
    })
}

fn memory(object: &Map<String, Value>) -> Result<u64, DeviceFileError> {
    let must = "a whole number of bytes below 1e19, as 8e10";
    let bytes = number(object, "", "memory", must)?;
    match bytes.fract() == 0.0 && (0.0..1e19).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(kind("memory", &object["memory"], must)),
    }
}

fn number(
    object: &Map<String, Value>,
    within: &str,
    name: &str,
    must: &'static str,
) -> Result<f64, DeviceFileError> {
    let value = field(object, within, name, must)?;
    value
        .as_f64()
        .ok_or_else(|| kind(&format!("{within}{name}"), value, must))
}

fn field<'a>(
    object: &'a Map<String, Value>,
    within: &str,
    name: &str,
    must: &'static str,
) -> Result<&'a Value, DeviceFileError> {
    object.get(name).ok_or_else(|| DeviceFileError::Missing {
        field: format!("{within}{name}"),
        must,
    })
}

fn known(object: &Map<String, Value>, within: &str, names: &[&str]) -> Result<(), DeviceFileError> {
    let unknown = object.keys().find(|key| !names.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| {
        Err(DeviceFileError::Unknown {
            field: format!("{within}{key}"),
            there: names.join(", "),
        })
    })
}

fn kind(field: &str, found: &Value, must: &'static str) -> DeviceFileError {
    DeviceFileError::Kind {
        field: field.to_owned(),
        found: output::beginning(&found.to_string()),
        must,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"bandwidth": 1e12, "flops": {"gemv": 1e12, "skinny": 1e13, "gemm": 1e14},
        "step_overhead": 0, "dispatch_overhead": 0, "memory": 1000000, "host_bandwidth": 1e10}"#;

    #[test]
    fn numbers_may_be_written_as_people_do() {
        let device = parse(FILE).unwrap();
        assert_eq!((device.flops.gemm, device.memory), (1e14, 1_000_000));
        let short = FILE.replace(r#"{"gemv": 1e12, "skinny": 1e13, "gemm": 1e14}"#, "2e14");
        let device = parse(&short.replace("1000000", "4.8e10")).unwrap();
        assert_eq!(device.flops.gemv, 2e14);
        assert_eq!(device.memory, 48_000_000_000);
        parse(EXAMPLE).unwrap();
    }

    #[test]
    fn a_file_is_held_to_its_fields() {
        for (from, to, words) in [
            ("1e12", "-1", "bandwidth is -1, but it must be from 1"),
            (
                "1e12",
                "\"fast\"",
                "bandwidth is \"fast\"; it must be a number of bytes",
            ),
            (
                "\"memory\"",
                "\"memories\"",
                "\"memories\"; there are bandwidth",
            ),
            ("\"memory\": 1000000, ", "", "memory is missing"),
            ("1000000", "-5", "memory is -5; it must be a whole number"),
            ("1000000", "0.5", "memory is 0.5; it must be a whole number"),
            (
                "1000000",
                "1e30",
                "; it must be a whole number of bytes below",
            ),
            ("1000000", "0", "memory is 0, but it must be from 1"),
            ("\"gemm\"", "\"gem\"", "\"flops.gem\"; there are gemv"),
            (", \"gemm\": 1e14", "", "flops.gemm is missing"),
            ("1e14}", "null}", "flops.gemm is null"),
            ("1e10}", "1e10", "line 2"),
        ] {
            assert!(FILE.contains(from), "{from}");
            let error = parse(&FILE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = parse("[]").unwrap_err().to_string();
        assert!(error.contains("host_bandwidth"), "{error}");
    }
}
