//! Subroutine around a function of C: its arguments are Fortran's, and `status` is optional.

use super::{Parameter, by_name, integer_kind, pointee, statement};
use crate::Outcome;

/// Subroutine that is being put together.
pub struct Procedure<'a> {
    /// Name of the function in C.
    function: &'a str,
    dummies: Vec<(&'a str, String)>,
    locals: Vec<String>,
    /// Statements before the call.
    before: Vec<String>,
    /// Statements after the call.
    after: Vec<String>,
    /// Arguments of the call.
    arguments: Vec<String>,
    /// True if the status is tested here, which compilers do not do for a procedure of another
    /// module: it saves ten instructions.
    pub is_fast: bool,
    /// True if functions that C calls are procedures, not addresses.
    pub takes_procedures: bool,
}

/// Numbers of elements, of bytes, and positions: C takes a negative one for a large one.
const SIZES: [&str; 8] = [
    "count",
    "scount",
    "rcount",
    "count_per_rank",
    "rcount_per_rank",
    "disp",
    "disp_unit",
    "size_bytes",
];

impl<'a> Procedure<'a> {
    pub fn new(function: &'a str) -> Procedure<'a> {
        let (dummies, locals, before) = (Vec::new(), Vec::new(), Vec::new());
        Procedure {
            function,
            dummies,
            locals,
            before,
            after: Vec::new(),
            arguments: Vec::new(),
            is_fast: false,
            takes_procedures: false,
        }
    }

    pub fn before(&mut self, statement: String) {
        self.before.push(statement);
    }

    pub fn local(&mut self, declaration: String) {
        self.locals.push(declaration);
    }

    /// Adds a dummy argument, and what C is passed for it.
    pub fn argument(&mut self, name: &'a str, declaration: &str, passed: String) {
        self.dummies.push((name, format!("{declaration} :: {name}")));
        self.arguments.push(passed);
    }

    /// Adds an argument of C that is no dummy argument.
    pub fn computed(&mut self, passed: String) {
        self.arguments.push(passed);
    }

    /// Adds a parameter that is no buffer of elements. `all` are the function's parameters.
    pub fn parameter(&mut self, one: &Parameter<'a>, all: &[Parameter<'a>]) -> Outcome<()> {
        let name = one.name();
        if let Some(ty) = one.value_type() {
            return self.value(name, ty, all);
        }
        let optional = if one.may_be_absent() { ", optional" } else { "" };
        let is_pointer = one.target()["kind"] == "pointer";
        if one.is_to("void") {
            self.argument(name, "type(c_ptr), value", name.to_owned());
        } else if one.is_to("char") && one.is_input() {
            self.text(name, optional);
        } else if one.is_to("char") {
            // C ends the text with a NUL, for which the argument needs no room.
            let declaration = format!("character(kind=c_char, len=*), intent(inout){optional}");
            self.argument(name, &declaration, format!("{name}_text"));
            self.local(format!("character(kind=c_char, len=:), allocatable :: {name}_text"));
            let guard =
                if one.may_be_absent() { format!("if (present({name})) ") } else { String::new() };
            self.before(format!("{guard}{name}_text = repeat(c_null_char, len({name}) + 1)"));
            self.after
                .push(format!("{guard}{name} = {name}_text(:index({name}_text, c_null_char) - 1)"));
        } else if is_pointer && one.target()["to"]["name"] == "char" {
            let declaration = "character(kind=c_char, len=:), allocatable, intent(out)";
            self.argument(name, declaration, format!("{name}_address"));
            self.local(format!("type(c_ptr) :: {name}_address"));
            self.before(format!("{name}_address = c_null_ptr"));
            self.after.push(format!("{name} = text_at({name}_address)"));
        } else {
            let (base, intent) = (pointee(one.target())?, one.intent());
            if one.length().is_none() {
                let declaration = format!("{base}, intent({intent}){optional}");
                self.argument(name, &declaration, name.to_owned());
                if name == "out_index" {
                    // Elements of arrays are numbered from 1.
                    self.before(format!("{name} = DTL_NO_INDEX"));
                    self.after.push(format!("if ({name} /= DTL_NO_INDEX) {name} = {name} + 1"));
                }
                return Ok(());
            }
            if name == "out_indices" {
                let found = format!("{name}(:out_count)");
                self.before("out_count = 0".into());
                let guard = if one.may_be_absent() {
                    format!("if (present({name})) ")
                } else {
                    String::new()
                };
                self.after.push(format!("{guard}{found} = {found} + 1"));
            }
            let declaration =
                format!("{base}, intent({intent}), contiguous, dimension(:){optional}");
            self.argument(name, &declaration, name.to_owned());
            if one.length() == Some("size(comm)") {
                self.require(one, "ranks(comm)");
            }
        }
        Ok(())
    }

    fn text(&mut self, name: &'a str, optional: &str) {
        let declaration = format!("character(kind=c_char, len=*), intent(in){optional}");
        if optional.is_empty() {
            self.argument(name, &declaration, format!("trim({name}) // c_null_char"));
            return;
        }
        // An allocatable that is not allocated is an absent argument.
        self.argument(name, &declaration, format!("{name}_text"));
        self.local(format!("character(kind=c_char, len=:), allocatable :: {name}_text"));
        self.before(format!("if (present({name})) {name}_text = trim({name}) // c_null_char"));
    }

    /// Adds a number. If it is that of the elements of arrays, it is their size.
    fn value(&mut self, name: &'a str, ty: &str, all: &[Parameter<'a>]) -> Outcome<()> {
        let counted = |other: &&Parameter<'a>| {
            other.length() == Some(name) && !other.is_to("void") && integer_kind(ty).is_some()
        };
        let arrays: Vec<&Parameter<'a>> = all.iter().filter(counted).collect();
        let Some(kind) = integer_kind(ty).filter(|_| !arrays.is_empty()) else {
            if name == "timeout_ns" && self.function.contains("_wait") {
                self.argument(
                    name,
                    "integer(c_int64_t), intent(in), optional",
                    "n_timeout_ns".into(),
                );
                self.local("integer(c_int64_t) :: n_timeout_ns".into());
                self.before("n_timeout_ns = DTL_TIMEOUT_INFINITE".into());
                self.before(format!("if (present({name})) n_timeout_ns = {name}"));
                return Ok(());
            }
            if ty.ends_with("_fn_t") && self.takes_procedures {
                self.callback(
                    name,
                    ty,
                    all.iter().any(|one| one.name() == name && one.is_optional()),
                );
                return Ok(());
            }
            self.argument(name, &format!("{}, value", by_name(ty)?), name.to_owned());
            if ty == "uint64_t" && SIZES.contains(&name) {
                let function = self.function;
                self.before(format!(
                    "if (is_negative(\"{function}\", \"{name}\", {name}, status)) return"
                ));
            }
            return Ok(());
        };
        // A shape has as many elements as there are dimensions, even if strides may be absent.
        let required = arrays.iter().find(|array| !array.may_be_absent());
        let local = format!("n_{name}");
        self.local(format!("integer({kind}) :: {local}"));
        let size = |array: &Parameter<'a>| match array.is_to("char") {
            true => format!("len({}, kind={kind}) + 1", array.name()),
            // A dummy argument `size` hides the intrinsic function.
            false if all.iter().any(|one| one.name() == "size") => {
                format!("ubound({}, 1, kind={kind})", array.name())
            }
            false => format!("size({}, kind={kind})", array.name()),
        };
        match required {
            Some(array) => self.before(format!("{local} = {}", size(array))),
            None => {
                self.before(format!("{local} = 0"));
                for array in arrays.iter().rev() {
                    let name = array.name();
                    self.before(format!("if (present({name})) {local} = {}", size(array)));
                }
            }
        }
        let measured = required.or(arrays.first()).map(|array| array.name());
        for array in arrays.iter().filter(|array| Some(array.name()) != measured) {
            self.require(array, &format!("int({local}, c_int64_t)"));
        }
        self.computed(local);
        Ok(())
    }

    /// Adds a function that C calls, as a procedure instead of its address.
    fn callback(&mut self, name: &'a str, ty: &str, is_optional: bool) {
        let optional = if is_optional { ", optional" } else { "" };
        self.dummies.push((name, format!("procedure({ty}){optional} :: {name}")));
        if !is_optional {
            return self.arguments.push(format!("c_funloc({name})"));
        }
        self.local(format!("type(c_funptr) :: {name}_address"));
        self.before(format!("{name}_address = c_null_funptr"));
        self.before(format!("if (present({name})) {name}_address = c_funloc({name})"));
        self.arguments.push(format!("{name}_address"));
    }

    /// Adds the checks that counts and positions of blocks are not negative: C would take them for
    /// large numbers. Those that belong to the buffer `in_place` are not read.
    pub fn not_negative(&mut self, all: &[Parameter<'a>], in_place: Option<&str>) {
        let function = self.function;
        for one in all {
            let (name, initial) = (one.name(), one.name().get(..1).unwrap_or_default());
            let is_number = one.length().is_some() && one.is_input() && one.is_to("uint64_t");
            if !is_number || in_place.is_some_and(|buffer| buffer.starts_with(initial)) {
                continue;
            }
            let blocks = match one.length() {
                Some("size(comm)") => "ranks(comm)".to_owned(),
                other => format!("n_{}", other.unwrap_or_default()),
            };
            let check = format!(
                "if (has_negative(\"{function}\", \"{name}\", {blocks}, status, {name})) return"
            );
            let counts = all.iter().find(|other| other.name() == format!("{initial}counts"));
            if counts.is_some_and(|counts| counts.condition().starts_with("rank!=root")) {
                self.before_block("if (is_root(comm, root)) then", &check);
            } else {
                self.before(check);
            }
        }
    }

    /// Returns the subroutine `name` whose counts and positions are default integers. It calls
    /// `specific`, which is this one. `None` if there are no counts and positions.
    pub fn narrow(&self, specific: &str, name: &str) -> Option<String> {
        const NUMBER: &str = "integer(c_int64_t), ";
        let is_narrow = |declaration: &str| {
            declaration.strip_prefix(NUMBER).is_some_and(|rest| {
                rest.starts_with("value") || rest.starts_with("intent(in), contiguous")
            })
        };
        let numbers: Vec<&(&str, String)> =
            self.dummies.iter().filter(|(_, declaration)| is_narrow(declaration)).collect();
        // With an argument that must be present the compiler finds the procedure.
        let first = numbers.first()?.0;
        let are_optional = numbers.iter().all(|(_, declaration)| declaration.contains("optional"));
        let (mut dummies, mut locals, mut before, mut arguments) =
            (String::new(), String::new(), String::new(), Vec::new());
        for (dummy, declaration) in &self.dummies {
            if !is_narrow(declaration) {
                statement(&mut dummies, 4, declaration);
                arguments.push((*dummy).to_owned());
                continue;
            }
            let mut narrow = declaration.replace("c_int64_t", "c_int32_t");
            if are_optional && *dummy == first {
                narrow = narrow.replace(", optional", "");
            }
            statement(&mut dummies, 4, &narrow);
            if narrow.contains(", value") {
                arguments.push(format!("int({dummy}, c_int64_t)"));
                continue;
            }
            // An allocatable that is not allocated is an absent argument.
            let guard = if narrow.contains(", optional") {
                format!("if (present({dummy})) ")
            } else {
                String::new()
            };
            statement(&mut locals, 4, &format!("integer(c_int64_t), allocatable :: n_{dummy}(:)"));
            let copy = format!("{guard}allocate (n_{dummy}, source=int({dummy}, c_int64_t))");
            statement(&mut before, 4, &copy);
            arguments.push(format!("n_{dummy}"));
        }
        let names = self.dummies.iter().map(|(name, _)| *name).chain(["status"]);
        let names = names.collect::<Vec<_>>().join(", ");
        let mut text = String::new();
        statement(&mut text, 0, &format!("subroutine {name}({names})"));
        text.push_str(&dummies);
        statement(&mut text, 4, "integer(c_int32_t), intent(out), optional :: status");
        text.push_str(&locals);
        text.push_str(&before);
        statement(&mut text, 4, &format!("call {specific}({}, status)", arguments.join(", ")));
        Some(text + "end subroutine\n")
    }

    /// Fails if an array has fewer elements than the call needs.
    fn require(&mut self, array: &Parameter<'a>, needed: &str) {
        let name = array.name();
        let check = self.lacks(name, &format!("size({name}, kind=c_int64_t)"), needed);
        if array.may_be_absent() {
            self.before(format!("if (present({name})) then"));
            self.before(format!("    {check}"));
            self.before("end if".into());
        } else {
            self.before(check);
        }
    }

    /// Returns the statement that fails if a buffer has fewer elements than the call needs.
    pub fn lacks(&self, name: &str, elements: &str, needed: &str) -> String {
        let function = self.function;
        format!("if (lacks(\"{function}\", \"{name}\", {elements}, {needed}, status)) return")
    }

    /// Returns the statement that fails if the elements of a buffer cannot be shared out evenly.
    pub fn uneven(&self, name: &str, elements: &str) -> String {
        let function = self.function;
        format!("if (uneven(\"{function}\", \"{name}\", {elements}, ranks(comm), status)) return")
    }

    /// Adds statements, one in a line, before the call. Those between `if` and `end if` are
    /// indented.
    pub fn before_lines(&mut self, depth: usize, lines: &str) {
        let mut inside = 0;
        for line in lines.lines() {
            inside -= usize::from(line == "end if");
            self.before.push(format!("{}{line}", " ".repeat(4 * (depth + inside))));
            inside += usize::from(line.ends_with(" then"));
        }
    }

    /// Adds statements before the call that run under a condition.
    pub fn before_block(&mut self, condition: &str, lines: &str) {
        self.before.push(condition.to_owned());
        self.before_lines(1, lines);
        self.before.push("end if".to_owned());
    }

    /// Returns the statement that fails if a buffer is a section that is not contiguous. Some
    /// compilers call a section so whose last dimension has one element; if the rank is known, the
    /// distances of its elements tell.
    pub fn strided(&self, name: &str, rank: Option<usize>) -> String {
        let function = self.function;
        let dense = match rank {
            Some(rank) => {
                let first = format!("{name}({})", vec!["1"; rank].join(", "));
                let step = |dimension: usize| {
                    let second = format!("min(2, ubound({name}, {dimension}))");
                    let place = |i| if i == dimension { second.as_str() } else { "1" };
                    let places = (1..=rank).map(place).collect::<Vec<_>>().join(", ");
                    format!("distance({first}, {name}({places}))")
                };
                let steps = (1..=rank).map(step).collect::<Vec<_>>().join(", ");
                format!("is_dense([{steps}], shape({name}, c_int64_t), ELEMENT_BYTES({name}))")
            }
            None => format!("is_contiguous({name}) .or. size({name}, kind=c_int64_t) <= 1"),
        };
        if rank.is_some() {
            // An empty array has no first element.
            return format!(
                "if (size({name}, kind=c_int64_t) > 1) then\n    if (strided(\"{function}\", \"{name}\", {dense}, \
                 status)) return\nend if"
            );
        }
        format!("if (strided(\"{function}\", \"{name}\", {dense}, status)) return")
    }

    /// Returns the subroutine.
    pub fn subroutine(&self, name: &str) -> String {
        let mut text = String::new();
        let function = self.function;
        let names = self.dummies.iter().map(|(name, _)| *name).chain(["status"]);
        let names = names.collect::<Vec<_>>().join(", ");
        statement(&mut text, 0, &format!("subroutine {name}({names})"));
        for (_, declaration) in &self.dummies {
            statement(&mut text, 4, declaration);
        }
        statement(&mut text, 4, "integer(c_int32_t), intent(out), optional :: status");
        for declaration in &self.locals {
            statement(&mut text, 4, declaration);
        }
        let call = format!("c_{function}({})", self.arguments.join(", "));
        let is_direct = self.after.is_empty() && !self.is_fast;
        if !is_direct {
            statement(&mut text, 4, "integer(c_int32_t) :: outcome");
        }
        for line in &self.before {
            let depth = 4 + line.len() - line.trim_start().len();
            statement(&mut text, depth, line.trim_start());
        }
        if is_direct {
            statement(&mut text, 4, &format!("call finish({call}, \"{function}\", status)"));
            return text + "end subroutine\n";
        }
        statement(&mut text, 4, &format!("outcome = {call}"));
        for line in &self.after {
            statement(&mut text, 4, line);
        }
        if self.is_fast {
            statement(&mut text, 4, "if (present(status)) then");
            statement(&mut text, 8, "status = outcome");
            statement(&mut text, 4, "else if (outcome /= DTL_SUCCESS) then");
            statement(&mut text, 8, &format!("call finish(outcome, \"{function}\")"));
            statement(&mut text, 4, "end if");
        } else {
            statement(&mut text, 4, &format!("call finish(outcome, \"{function}\", status)"));
        }
        text + "end subroutine\n"
    }
}
