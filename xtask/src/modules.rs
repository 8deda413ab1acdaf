//! The modules of one crate: their files, items, re-exports, and the paths that their code names.
//!
//! Code that is compiled for tests only is left out. Paths are collected as written; `graph`
//! resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

/// Index of a module in [`Crate::modules`].
pub type ModuleId = usize;

/// A module: a file, or a part of one.
#[derive(Default)]
pub struct Module {
    /// Path below the crate's `src`, with the names of inline modules left out.
    pub file: PathBuf,
    pub parent: Option<ModuleId>,
    pub children: BTreeMap<String, ModuleId>,
    /// Names of the items that are defined here.
    pub items: BTreeSet<String>,
    /// Names that `use` brings in, with the path that each stands for.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Paths of `use path::*`.
    pub globs: Vec<Vec<String>>,
    /// Paths that the code names, in `use` or anywhere else.
    pub paths: BTreeSet<Vec<String>>,
}

/// All modules of a crate. The first is its root.
pub struct Crate {
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads a crate from the folder that has its `lib.rs` or `main.rs`.
    ///
    /// # Errors
    /// A sentence that names the file which cannot be read or parsed.
    pub fn read(source: &Path) -> Result<Crate, String> {
        let mut found = Crate { modules: Vec::new() };
        let root = ["lib.rs", "main.rs"].into_iter().find(|name| source.join(name).exists());
        let Some(root) = root else {
            return Err(format!("{} has neither lib.rs nor main.rs", source.display()));
        };
        found.read_file(source, Path::new(root), None, Path::new(""))?;
        Ok(found)
    }

    /// Returns the names of the modules in a folder, or `None` if the crate has no such folder.
    pub fn modules_in(&self, folder: &Path) -> Option<Vec<&str>> {
        let mut module = self.modules.first()?;
        for name in folder {
            module = &self.modules[*module.children.get(name.to_str()?)?];
        }
        Some(module.children.keys().map(String::as_str).collect())
    }

    /// Reads a module's file. `folder` is the folder of its child modules' files.
    fn read_file(
        &mut self,
        source: &Path,
        file: &Path,
        parent: Option<ModuleId>,
        folder: &Path,
    ) -> Result<ModuleId, String> {
        let path = source.join(file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let syntax = syn::parse_file(&text)
            .map_err(|error| format!("cannot parse {}: {error}", path.display()))?;
        let id = self.modules.len();
        self.modules.push(Module { file: file.to_path_buf(), parent, ..Module::default() });
        self.read_items(source, id, &syntax.items, folder)?;
        Ok(id)
    }

    fn read_items(
        &mut self,
        source: &Path,
        id: ModuleId,
        items: &[syn::Item],
        folder: &Path,
    ) -> Result<(), String> {
        for item in items {
            if attributes(item).iter().any(is_for_tests) {
                continue;
            }
            match item {
                syn::Item::Mod(module) => self.read_child(source, id, module, folder)?,
                syn::Item::Use(tree) => self.modules[id].read_use(&mut Vec::new(), &tree.tree),
                _ => {
                    self.modules[id].items.extend(name_of(item));
                    let mut seen = Paths { found: &mut self.modules[id].paths };
                    seen.visit_item(item);
                }
            }
        }
        Ok(())
    }

    fn read_child(
        &mut self,
        source: &Path,
        parent: ModuleId,
        module: &syn::ItemMod,
        folder: &Path,
    ) -> Result<(), String> {
        let name = module.ident.to_string();
        let id = match &module.content {
            Some((_, items)) => {
                let file = self.modules[parent].file.clone();
                let id = self.modules.len();
                self.modules.push(Module { file, parent: Some(parent), ..Module::default() });
                self.read_items(source, id, items, &folder.join(&name))?;
                id
            }
            None => {
                let mut file = folder.join(format!("{name}.rs"));
                let mut below = folder.join(&name);
                if let Some(path) = path_attribute(&module.attrs) {
                    let here = self.modules[parent].file.parent().unwrap_or(Path::new(""));
                    file = here.join(path);
                    below = file.parent().unwrap_or(Path::new("")).to_path_buf();
                } else if !source.join(&file).exists() {
                    file = below.join("mod.rs");
                }
                self.read_file(source, &file, Some(parent), &below)?
            }
        };
        self.modules[parent].children.insert(name, id);
        Ok(())
    }
}

impl Module {
    fn read_use(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.read_use(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.add_use(prefix, &name, &name);
            }
            syn::UseTree::Rename(rename) => {
                self.add_use(prefix, &rename.ident.to_string(), &rename.rename.to_string());
            }
            syn::UseTree::Glob(_) => {
                self.globs.push(prefix.clone());
                self.paths.insert(prefix.clone());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(prefix, tree);
                }
            }
        }
    }

    fn add_use(&mut self, prefix: &[String], name: &str, alias: &str) {
        let mut path = prefix.to_vec();
        let mut alias = alias;
        if name == "self" {
            alias = prefix.last().map_or(alias, String::as_str);
        } else {
            path.push(name.to_string());
        }
        self.paths.insert(path.clone());
        self.aliases.insert(alias.to_string(), path);
    }
}

/// Collects the paths of an item.
struct Paths<'a> {
    found: &'a mut BTreeSet<Vec<String>>,
}

impl<'a> Visit<'a> for Paths<'_> {
    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            self.found.insert(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    /// `pub(in path)` limits who may import from here, and imports nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        // Inside a function: only the paths matter.
        let mut scope = Module::default();
        scope.read_use(&mut Vec::new(), &item.tree);
        self.found.append(&mut scope.paths);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.visit_path(&called.path);
        self.find_in(called.tokens.clone());
    }

    fn visit_item_macro(&mut self, item: &'a syn::ItemMacro) {
        self.find_in(item.mac.tokens.clone());
    }
}

impl Paths<'_> {
    /// Finds paths in the arguments of a macro, which have no syntax tree.
    fn find_in(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    colons = 0;
                    path.push(name.to_string());
                }
                other => {
                    colons = 0;
                    self.end(&mut path);
                    if let TokenTree::Group(group) = other {
                        self.find_in(group.stream());
                    }
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.found.insert(path);
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Returns true for `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let text = list.tokens.to_string();
    text == "test" || (text.starts_with("all") && text.contains("test"))
}

/// Returns the file that `#[path = "..."]` names.
fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
            return None;
        };
        pair.path.is_ident("path").then(|| text.value())
    })
}
