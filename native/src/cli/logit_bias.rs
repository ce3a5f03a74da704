//! One `--logit-bias`: an id and what is added to its score. Knows no vocabulary.

pub(super) fn parse(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text
        .split_once('=')
        .ok_or("it must be ID=BIAS, such as 13=-100")?;
    let id = id
        .trim()
        .parse()
        .map_err(|_| format!("{id:?} is no token id"))?;
    let bias = bias
        .trim()
        .parse()
        .map_err(|_| format!("{bias:?} is no number"))?;
    Ok((id, bias))
}
