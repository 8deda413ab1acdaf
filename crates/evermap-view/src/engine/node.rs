//! Looks up names, attributes, children and styles in the engine's document.

use blitz_dom::{BaseDocument, Node, NodeId};

/// Returns the element's name, or an empty string for other nodes.
pub(super) fn name_of(node: &Node) -> &str {
    node.element_data().map_or("", |element| element.name.local.as_ref())
}

/// Returns the value of an attribute without a namespace.
pub(super) fn attribute<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    let attributes = node.element_data()?.attrs();
    attributes.iter().find(|one| &*one.name.local == name).map(|one| &*one.value)
}

/// Returns the children of an element that have one of these names.
pub(super) fn children_named(document: &BaseDocument, id: NodeId, names: &[&str]) -> Vec<NodeId> {
    let Some(node) = document.get_node(id) else { return Vec::new() };
    let is_named = |child: &NodeId| {
        document.get_node(*child).is_some_and(|child| names.contains(&name_of(child)))
    };
    node.children.iter().copied().filter(is_named).collect()
}

/// Returns a computed value, or an empty string for an element that is not displayed and so has no
/// style.
pub(super) fn style_of(document: &BaseDocument, id: NodeId, property: &str) -> String {
    match document.get_node(id) {
        Some(node) if node.primary_styles().is_some() => {
            document.resolved_style_value(id, property)
        }
        _ => String::new(),
    }
}
