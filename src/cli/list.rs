//! `mlarun list`: what the catalogue holds.

use serde::Serialize;

use super::args::{Global, ListArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::catalog::{Package, Parameter, ParameterKind};
use crate::model::KernelId;

pub fn run(global: &Global, args: &ListArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let broken = project.catalog.diagnostics();
    output::diagnostics(&broken, global.color);
    let wanted = |package: &&Package| args.kernel.as_ref().is_none_or(|kernel| *kernel == package.id.kernel);
    let packages: Vec<&Package> = project.catalog.packages().filter(wanted).collect();
    if packages.is_empty()
        && let Some(kernel) = &args.kernel
    {
        let known = project.catalog.packages().map(|package| package.id.kernel.as_str());
        let near = crate::diagnostic::suggestion(kernel, known).map(|text| format!("; {text}")).unwrap_or_default();
        return Err(CliError::usage(format!("there is no kernel `{kernel}`{near}")));
    }
    if global.json {
        output::json(&packages.iter().map(|package| Listed::of(package)).collect::<Vec<_>>())?;
    } else if args.kernel.is_some() {
        packages.iter().try_for_each(|package| output::text(&full(package)))?;
    } else {
        let mut table = output::table(&["KERNEL", "VERSION", "LANGUAGE", "DESCRIPTION"]);
        for package in &packages {
            let KernelId { kernel, version, language } = &package.id;
            table.add_row([kernel.clone(), version.to_string(), language.to_string(), package.description.clone()]);
        }
        output::text(&output::table_text(&table))?;
    }
    Ok(if broken.is_empty() { Exit::Success } else { Exit::Usage })
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    id: &'a KernelId,
    folder: &'a std::path::Path,
    description: &'a str,
    parameters: Vec<ListedParameter<'a>>,
    stages: Vec<&'a str>,
}

#[derive(Serialize)]
struct ListedParameter<'a> {
    name: &'a str,
    r#type: String,
    default: Option<&'a str>,
    tunable: bool,
    doc: &'a str,
}

impl<'a> Listed<'a> {
    fn of(package: &'a Package) -> Listed<'a> {
        Listed {
            id: &package.id,
            folder: &package.folder,
            description: &package.description,
            parameters: package.parameters.iter().map(ListedParameter::of).collect(),
            stages: package.stages.iter().map(|stage| stage.name.as_str()).collect(),
        }
    }
}

impl<'a> ListedParameter<'a> {
    fn of(parameter: &'a Parameter) -> ListedParameter<'a> {
        ListedParameter {
            name: &parameter.name,
            r#type: kind(&parameter.kind),
            default: parameter.default.as_ref().map(crate::expr::Expr::source),
            tunable: parameter.is_tunable(),
            doc: &parameter.doc,
        }
    }
}

fn kind(kind: &ParameterKind) -> String {
    match kind {
        ParameterKind::Int { min, max: i64::MAX } => format!("integer from {min}"),
        ParameterKind::Int { min, max } => format!("integer, {min} to {max}"),
        ParameterKind::DType { allowed } => allowed.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(" | "),
        ParameterKind::Float | ParameterKind::Bool => kind.word().to_owned(),
    }
}

fn full(package: &Package) -> String {
    let mut table = output::table(&["PARAMETER", "TYPE", "DEFAULT", ""]);
    for parameter in &package.parameters {
        let default = parameter.default.as_ref().map_or("(required)", |default| default.source());
        let tuned = if parameter.is_tunable() { " (tuned unless given)" } else { "" };
        let doc = format!("{}{tuned}", parameter.doc);
        table.add_row([parameter.name.clone(), kind(&parameter.kind), default.to_owned(), doc]);
    }
    let stages: Vec<&str> = package.stages.iter().map(|stage| stage.name.as_str()).collect();
    format!(
        "{}\n  {}\n  {}\n  stages: {}\n\n{}\n",
        package.id,
        package.description,
        package.folder.display(),
        stages.join(", "),
        output::table_text(&table)
    )
}
