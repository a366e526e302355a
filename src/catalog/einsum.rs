//! Index notation of tensor formulas: its letters against the ranks of the tensors. Pure.

/// Letters of each operand and of the result, e.g. of `btk,hkd->bthd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub operands: Vec<Vec<char>>,
    pub result: Vec<char>,
}

impl Spec {
    /// Reads the notation.
    ///
    /// # Errors
    /// What is wrong with it: no arrow, not one or two operands, something that is no lower-case letter, a letter
    /// twice in one group, a letter of the result that no operand has.
    pub fn parse(text: &str) -> Result<Spec, String> {
        let (left, right) = text.split_once("->").ok_or("it has no `->`")?;
        let operands: Vec<Vec<char>> = left.split(',').map(letters).collect::<Result<_, _>>()?;
        if operands.len() > 2 {
            return Err(format!("it has {} operands, where one or two are possible", operands.len()));
        }
        let result = letters(right)?;
        match result.iter().find(|letter| !operands.concat().contains(letter)) {
            Some(letter) => Err(format!("no operand has the letter `{letter}` of the result")),
            None => Ok(Spec { operands, result }),
        }
    }
}

fn letters(group: &str) -> Result<Vec<char>, String> {
    let letters: Vec<char> = group.trim().chars().collect();
    if letters.is_empty() {
        return Err("it has a group without letters".to_owned());
    }
    for (index, letter) in letters.iter().enumerate() {
        if !letter.is_ascii_lowercase() {
            return Err(format!("`{letter}` is no lower-case letter"));
        }
        if letters[..index].contains(letter) {
            return Err(format!("`{}` has the letter `{letter}` twice", group.trim()));
        }
    }
    Ok(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_is_read() {
        let spec = Spec::parse("btk, hkd -> bthd").expect("it is right");
        assert_eq!(spec.operands, [vec!['b', 't', 'k'], vec!['h', 'k', 'd']]);
        assert_eq!(spec.result, ['b', 't', 'h', 'd']);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |text: &str| Spec::parse(text).expect_err(text);
        assert_eq!(wrong("bt,tk"), "it has no `->`");
        assert_eq!(wrong("a,b,c->abc"), "it has 3 operands, where one or two are possible");
        assert_eq!(wrong("ab,->ab"), "it has a group without letters");
        assert_eq!(wrong("aB->a"), "`B` is no lower-case letter");
        assert_eq!(wrong("aba->a"), "`aba` has the letter `a` twice");
        assert_eq!(wrong("ab,bc->ad"), "no operand has the letter `d` of the result");
    }
}
