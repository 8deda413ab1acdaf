//! Describes how a word in an object is reached from its root.
//!
//! The path is `root.pages[3].title` if types are known, otherwise block addresses and offsets:
//! `root +16 -> 0x20c0000a0040 +8`. Of a long path only the two ends are shown. The path comes from
//! the parents that a walk recorded, so it is as trustworthy as the walk.

use std::collections::VecDeque;

use super::blocks::Location;
use super::memory::Memory;
use super::schema::{Kind, Schema, TypeNumber};
use super::walked::{Content, ROOT, Spot, WalkResult};
use crate::tools::report::quantity;
use crate::tools::strings::StringPlace;

/// Steps shown at each end of a long path.
const STEPS_SHOWN: usize = 6;
/// Limit of steps followed back to the root. A list may have millions.
const STEPS_MAX: u64 = 100_000;
/// Limit of characters shown of a map's key.
const KEY_CHARS: usize = 40;

/// Returns the path from the root to a word.
pub(in crate::tools) fn path_of(
    walked: &WalkResult,
    memory: &mut Memory<'_>,
    spot: Spot,
) -> String {
    if spot.holder != ROOT && !walked.is_reached(spot.holder) {
        let address = walked.blocks.block(spot.holder).map_or(0, |block| block.address);
        return format!("leaked {address:#x} +{}", spot.offset);
    }
    let (mut near, mut far) = (vec![spot], VecDeque::new());
    let (mut at, mut left_out, mut is_whole) = (spot, 0u64, false);
    for _ in 0..STEPS_MAX {
        if at.holder == ROOT {
            is_whole = true;
            break;
        }
        let Some(before) = walked.led_by(at.holder) else {
            // The root is in a block itself.
            is_whole = true;
            break;
        };
        at = before;
        match near.len() < STEPS_SHOWN {
            true => near.push(at),
            false => {
                far.push_back(at);
                if far.len() > STEPS_SHOWN {
                    far.pop_front();
                    left_out += 1;
                }
            }
        }
    }
    let mut text = String::new();
    let mut way: Vec<Option<Spot>> = Vec::new();
    if is_whole {
        text.push_str("root");
        way.extend(far.iter().rev().map(|spot| Some(*spot)));
        if left_out > 0 {
            way.push(None);
        }
    } else {
        text.push_str("root .. (more than 100,000 blocks) ..");
    }
    way.extend(near.iter().rev().map(|spot| Some(*spot)));
    let mut is_first = is_whole;
    for step in way {
        match step {
            None => text += &format!(" .. ({}) ..", quantity(left_out, "block")),
            Some(spot) => text += &step_of(walked, memory, spot, is_first),
        }
        is_first = false;
    }
    text
}

/// Describes one step: the part of a block's content that holds the pointer.
fn step_of(walked: &WalkResult, memory: &mut Memory<'_>, spot: Spot, is_first: bool) -> String {
    let (content, address) = match spot.holder {
        ROOT => (root_content(walked), walked.root_address),
        number => {
            let address = walked.blocks.block(number).map_or(0, |block| block.address);
            (walked.content(number).unwrap_or(Content::Raw), address)
        }
    };
    let mut text = String::new();
    let schema = walked.schema.as_ref();
    let rest = match (content, schema) {
        (Content::Value(is), Some(schema)) => part_of(schema, is, spot.offset, &mut text),
        (Content::Elements(is), Some(schema)) => match schema.at(is).size.filter(|s| *s > 0) {
            Some(size) => {
                text += &format!("[{}]", spot.offset / size);
                part_of(schema, is, spot.offset % size, &mut text)
            }
            None => Some(spot.offset),
        },
        (Content::Entries(key, value), Some(schema)) => {
            let at = (address, spot.offset);
            entry_of(walked, memory, (schema, key, value), at, &mut text)
        }
        (Content::Node(key, value, _), Some(schema)) => {
            let at = (address, spot.offset);
            node_of(walked, memory, (schema, key, value), at, &mut text)
        }
        (Content::Raw | Content::Bytes, _) | (_, None) => {
            if !is_first {
                text += &format!(" -> {address:#x}");
            }
            Some(spot.offset)
        }
    };
    rest.map_or(text.clone(), |offset| format!("{text} +{offset}"))
}

fn root_content(walked: &WalkResult) -> Content {
    walked.schema.as_ref().map_or(Content::Raw, |schema| Content::Value(schema.root))
}

/// Appends the names of the parts of a value at an offset. Returns the rest of the offset if the
/// types do not describe it.
fn part_of(schema: &Schema, is: TypeNumber, offset: u64, text: &mut String) -> Option<u64> {
    match &schema.at(is).kind {
        Kind::Struct(fields) => {
            // A field of size zero has the same offset as the next one.
            let has = |f: &&super::schema::Field| (f.offset..f.end).contains(&offset);
            let Some(field) = fields.iter().find(has) else { return Some(offset) };
            *text += &format!(".{}", field.name);
            part_of(schema, field.is, offset - field.offset, text)
        }
        Kind::Array(element, _) => {
            let size = schema.at(*element).size.filter(|size| *size > 0)?;
            *text += &format!("[{}]", offset / size);
            part_of(schema, *element, offset % size, text)
        }
        Kind::Unknown => Some(offset),
        _ => None,
    }
}

fn entry_of(
    walked: &WalkResult,
    memory: &mut Memory<'_>,
    (schema, key, value): (&Schema, TypeNumber, TypeNumber),
    (address, offset): (u64, u64),
    text: &mut String,
) -> Option<u64> {
    let Some((key_at, value_at, stride)) = schema.entry(key, value) else { return Some(offset) };
    let (index, inside) = (offset / stride.max(1), offset % stride.max(1));
    let shown = key_text(walked, memory, schema, key, address + index * stride + key_at);
    *text += &format!("[{}]", shown.unwrap_or_else(|| format!("entry {index}")));
    if inside >= value_at {
        return part_of(schema, value, inside - value_at, text);
    }
    text.push_str(".key");
    part_of(schema, key, inside.saturating_sub(key_at), text)
}

fn node_of(
    walked: &WalkResult,
    memory: &mut Memory<'_>,
    (schema, key, value): (&Schema, TypeNumber, TypeNumber),
    (address, offset): (u64, u64),
    text: &mut String,
) -> Option<u64> {
    let Some(node) = schema.node(key, value) else { return Some(offset) };
    if offset >= node.children_at {
        // A pointer from node to node has no name.
        return None;
    }
    let is_value = offset >= node.values.0;
    let (first, bytes) = if is_value { node.values } else { node.keys };
    let (index, inside) = match offset.checked_sub(first) {
        Some(at) if bytes > 0 => (at / bytes, at % bytes),
        _ => return Some(offset),
    };
    let key_address = address + node.keys.0 + index * node.keys.1;
    let shown = key_text(walked, memory, schema, key, key_address);
    *text += &format!("[{}]", shown.unwrap_or_else(|| format!("entry {index}")));
    if !is_value {
        text.push_str(".key");
    }
    part_of(schema, if is_value { value } else { key }, inside, text)
}

/// Formats a key if it is a number or a string.
fn key_text(
    walked: &WalkResult,
    memory: &mut Memory<'_>,
    schema: &Schema,
    key: TypeNumber,
    address: u64,
) -> Option<String> {
    let of = schema.at(key);
    if of.kind == Kind::String {
        let (at, len) = match StringPlace::of(memory.word(address + 16).ok()??) {
            StringPlace::Here(len) => (address, len),
            StringPlace::Block => {
                let (at, len) = (memory.word(address).ok()??, memory.word(address + 8).ok()??);
                let is_block = matches!(walked.blocks.locate(at), Location::Block(_, 0));
                if !is_block && len > 0 {
                    return None;
                }
                (at, len)
            }
            StringPlace::Damaged => return None,
        };
        let bytes = memory.bytes(at, len.min(4 * KEY_CHARS as u64) as usize).ok()?;
        let shown: String = String::from_utf8_lossy(&bytes).chars().take(KEY_CHARS).collect();
        let cut = if shown.len() < len as usize { ".." } else { "" };
        return Some(format!("{shown:?}{cut}"));
    }
    let bytes = memory.bytes(address, of.size?.min(8) as usize).ok()?;
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(&bytes);
    let number = u64::from_le_bytes(wide);
    match of.name.as_str() {
        "u8" | "u16" | "u32" | "u64" => Some(number.to_string()),
        "i64" => Some((number as i64).to_string()),
        "i32" => Some((number as i32).to_string()),
        _ => None,
    }
}
