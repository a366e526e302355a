//! Which templates are accepted: those that end, whoever wrote them. A loop goes over what the item of the loop around it
//! holds, so that rendering takes no longer than the view is large.

use handlebars::Template;
use handlebars::template::{HelperTemplate, Parameter, TemplateElement};

/// Bytes of the longest template.
const LONGEST: usize = 1 << 16;
/// Tags of a template, and brackets in its tags: as many may stand in one another.
const MOST_TAGS: usize = 500;

/// The parsed `text`.
///
/// # Errors
/// Why it is no template, or none that is sure to end, and the line where that shows.
pub(super) fn parse(text: &str) -> Result<Template, (usize, String)> {
    if text.len() > LONGEST {
        return Err((0, format!("it has {} bytes, at most {LONGEST} are allowed", text.len())));
    }
    // Counted before it is parsed, which takes as much stack as blocks stand in one another.
    let tags = || text.split("{{").skip(1);
    let brackets: usize = tags().map(|tag| tag.split("}}").next().unwrap_or(tag).matches('(').count()).sum();
    for (count, of) in [(tags().count(), "tags"), (brackets, "brackets in tags")] {
        if count > MOST_TAGS {
            return Err((0, format!("it has {count} {of}, at most {MOST_TAGS} are allowed")));
        }
    }
    let template = Template::compile(text)
        .map_err(|error| (error.pos().map_or(0, |(line, _)| line), error.reason().to_string()))?;
    check(&template)?;
    Ok(template)
}

fn check(template: &Template) -> Result<(), (usize, String)> {
    for (index, element) in template.elements.iter().enumerate() {
        let at = |reason: &str| (template.mapping.get(index).map_or(0, |at| at.0), reason.to_owned());
        match element {
            TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
            TemplateElement::Expression(_) | TemplateElement::HtmlExpression(_) => {}
            TemplateElement::HelperBlock(block) => {
                if changes_context(block) && (block.block_param.is_some() || !block.params.iter().all(goes_down)) {
                    return Err(at(
                        "a block goes over what stands around it; name something that the item itself holds",
                    ));
                }
                [&block.template, &block.inverse].into_iter().flatten().try_for_each(check)?;
            }
            _ => return Err(at("it includes or defines another template, which templates cannot")),
        }
    }
    Ok(())
}

/// Names inside the block are those of its parameter.
fn changes_context(block: &HelperTemplate) -> bool {
    !matches!(block.name.as_name(), Some("if" | "unless"))
}

/// A plain path that starts at the item at hand.
fn goes_down(parameter: &Parameter) -> bool {
    let plain = |path: &str| !path.contains("..") && !path.contains('@');
    matches!(parameter, Parameter::Path(_) | Parameter::Name(_)) && parameter.as_name().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_might_not_end_is_refused_with_its_line() {
        for text in [
            "\n{{> profile.md.hbs}}",
            "\n{{#> profile.md.hbs}}{{/profile.md.hbs}}",
            "\n{{#*inline \"x\"}}{{> x}}{{/inline}}",
            "\n{{#each rows}}{{#each ../rows}}{{/each}}{{/each}}",
            "\n{{#each rows}}{{#each @root.rows}}{{/each}}{{/each}}",
            "\n{{#each rows as |row|}}{{#each row.cells}}{{/each}}{{/each}}",
            "\n{{#each rows}}{{#each (lookup @root \"rows\")}}{{/each}}{{/each}}",
            "\n{{#if x}}{{else}}{{#each rows}}{{#with ../rows}}{{/with}}{{/each}}{{/if}}",
            "\n{{^each ../rows}}{{/each}}",
        ] {
            let (line, reason) = parse(text).expect_err(text);
            assert!(line == 2 && !reason.is_empty(), "{text:?}: {line}: {reason}");
        }
    }

    #[test]
    fn loops_over_what_an_item_holds_are_accepted() {
        let text =
            "{{#each rows}}{{#if ../x}}{{../x}}{{/if}}{{#each cells}}{{#with this.a}}{{b}}{{/with}}{{/each}}{{/each}}";
        assert!(parse(text).is_ok());
    }

    #[test]
    fn the_deepest_template_fits_the_stack_of_any_thread() {
        let nested = |count: usize| format!("{}{}", "{{#if x}}".repeat(count), "{{/if}}".repeat(count));
        let call = |count: usize| format!("{{{{{}x{}}}}}", "(a ".repeat(count), ")".repeat(count));
        let chain = |count: usize| format!("{{{{#if x}}}}{}{{{{/if}}}}", "{{else if x}}".repeat(count));
        let parses = move || {
            assert!(parse(&nested(MOST_TAGS / 2)).is_ok() && parse(&chain(MOST_TAGS - 2)).is_ok());
            // With a meaning or without: it comes back.
            let _ = parse(&call(MOST_TAGS));
            let _ = parse(&"{{#if x}}".repeat(MOST_TAGS));
            for text in [nested(MOST_TAGS), call(MOST_TAGS + 1), chain(MOST_TAGS), "x".repeat(LONGEST + 1)] {
                assert!(parse(&text).expect_err("too much").1.contains("at most"));
            }
        };
        // Threads of a pool have 2 MiB.
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(parses).expect("a thread");
        thread.join().expect("it ends well");
    }
}
