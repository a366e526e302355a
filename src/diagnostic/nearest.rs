//! The right name nearest to a wrong one.

/// The candidate that `name` most probably means: at most a third of the longer one's characters differ.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let longer = name.chars().count().max(candidate.chars().count());
            let distance = strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase());
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Help for an unknown `name`: the nearest candidate, else all of them when they are few.
pub fn suggestion<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    const FEW: usize = 16;
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(near) = nearest(name, candidates.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let listed = candidates.iter().map(|candidate| format!("`{candidate}`")).collect::<Vec<_>>().join(", ");
    match candidates.len() {
        1 => Some(format!("the only one here is {listed}")),
        2..=FEW => Some(format!("known here: {listed}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        assert_eq!(nearest("flash_mal", ["flash_attention", "flash_mla"]), Some("flash_mla"));
        assert_eq!(nearest("verison", ["versions", "version"]), Some("version"));
        assert_eq!(nearest("Modes", ["modes"]), Some("modes"));
    }

    #[test]
    fn a_different_word_is_not() {
        assert_eq!(nearest("x", ["s", "t"]), None);
        assert_eq!(nearest("colour", ["versions"]), None);
        assert_eq!(suggestion("x", ["s", "t"]).as_deref(), Some("known here: `s`, `t`"));
        assert_eq!(suggestion("x", []), None);
    }
}
