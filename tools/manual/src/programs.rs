//! Manual pages and shell completions of a program, made from its options.

use clap::CommandFactory;
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::Path;
use std::process::exit;

/// If the arguments of this process are `--generate FOLDER`, writes the files of the program into
/// the folder, and ends the process: `man1`, `bash`, `zsh` and `fish` below it. The build of the
/// package calls a program in this way; its users do not.
pub fn generate<P: CommandFactory>() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [flag, folder] = &arguments[..] else { return };
    if flag == "--generate" {
        // The pages of `help` would say nothing.
        let command = P::command().disable_help_subcommand(true);
        let result = write(command, Path::new(folder));
        result.unwrap_or_else(|error| {
            drop(std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("--generate {}: {error}\n", Path::new(folder).display()).as_bytes(),
            ));
            exit(1)
        });
        exit(0);
    }
}

/// Writes the files of a program with these options.
pub(crate) fn write(mut command: clap::Command, folder: &Path) -> std::io::Result<()> {
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let below = folder.join(shell.to_string());
        std::fs::create_dir_all(&below)?;
        clap_complete::generate_to(shell, &mut command, &name, below)?;
    }
    let below = folder.join("man1");
    std::fs::create_dir_all(&below)?;
    clap_mangen::generate_to(command, below)
}
