//! Walks an object from its root to every reachable block, and records the content of each block.
//!
//! The walk is breadth first and uses tables instead of a stack, so long lists and deep trees cost
//! no more memory than other blocks. Owning pointers are followed before others, so a block reached
//! both ways is read with the type that its owner gives it. The [`Visitor`] receives every pointer
//! with the location it leads to. Each step is bounded by an allocated block, and each block is
//! visited a bounded number of times, so the walk ends for any contents.

use std::collections::{HashMap, VecDeque};

use crate::error::Result;
use crate::format::Superblock;
use crate::tools::image::Image;
use crate::tools::strings::StringPlace;

use super::blocks::{Bits, Block, Blocks, Location};
use super::memory::Memory;
use super::schema::{Field, HEIGHT_MAX, Kind, NODE_ENTRIES, Schema, TypeNumber};
use super::walked::{
    Content, Defect, Evidence, Pointer, ROOT, Spot, UNREACHED, Visitor, WalkResult,
};

/// Block to be visited.
struct Visit {
    number: u32,
    content: Content,
    /// Number of elements or entries; 1 for a value.
    count: u64,
}

/// Block reached by a pointer that does not own it. Visited if no owner is found.
struct Deferred {
    number: u32,
    content: Content,
    spot: Spot,
}

/// Target that an owning pointer claims.
#[derive(Clone, Copy)]
struct Owned {
    content: Content,
    count: u64,
    /// Required size of the block in bytes; `None` on overflow.
    bytes: Option<u64>,
    /// Size of one element in bytes.
    stride: u64,
}

/// Walks an object from its root.
pub(in crate::tools) fn walk(
    image: &Image,
    memory: &mut Memory<'_>,
    visitor: &mut dyn Visitor,
) -> Result<WalkResult> {
    let blocks = Blocks::of(image)?;
    let s: &Superblock = image.superblock();
    let schema = Schema::of(s);
    let slots = blocks.slots() as usize;
    let types = schema.as_ref().map_or(0, |schema| schema.types.len());
    let walked = WalkResult {
        blocks,
        parents: vec![UNREACHED; slots],
        offsets: vec![0; slots],
        contents: vec![0; slots],
        kinds: vec![Content::Raw],
        root_address: s.root_address,
        root_bytes: s.root_bytes,
        values: vec![0; types],
        interior: 0,
        looked_at: 0,
        schema: None,
    };
    let contained = schema.as_ref().map_or_else(Vec::new, Schema::contained);
    let empty = Schema { types: Vec::new(), root: 0, is_truncated: false };
    let is_typed = schema.is_some();
    let mut walk = Walk {
        memory,
        visitor,
        schema: schema.as_ref().unwrap_or(&empty),
        is_typed,
        contained,
        owned: Bits::new(if is_typed { slots as u64 } else { 0 }),
        kind_numbers: HashMap::from([(Content::Raw, 0)]),
        queue: VecDeque::new(),
        deferred: VecDeque::new(),
        words: Vec::new(),
        walked,
    };
    walk.begin()?;
    walk.all()?;
    let mut walked = walk.walked;
    walked.schema = schema;
    Ok(walked)
}

struct Walk<'w, 'm, 'i> {
    memory: &'m mut Memory<'i>,
    visitor: &'m mut dyn Visitor,
    schema: &'w Schema,
    is_typed: bool,
    /// See [`Schema::contained`].
    contained: Vec<Vec<(TypeNumber, u64)>>,
    /// Blocks that have an owner. Empty if no type is known.
    owned: Bits,
    kind_numbers: HashMap<Content, u16>,
    queue: VecDeque<Visit>,
    deferred: VecDeque<Deferred>,
    words: Vec<(u64, u64)>,
    walked: WalkResult,
}

impl Walk<'_, '_, '_> {
    fn begin(&mut self) -> Result<()> {
        let (address, bytes) = (self.walked.root_address, self.walked.root_bytes);
        if address == 0 {
            return Ok(());
        }
        let content = match self.is_typed {
            true => Content::Value(self.schema.root),
            false => Content::Raw,
        };
        match self.walked.blocks.locate(address) {
            Location::Block(number, 0) => {
                self.mark(number, Spot { holder: ROOT, offset: u64::MAX }, content);
                self.own(number);
                self.queue.push_back(Visit { number, content, count: 1 });
                Ok(())
            }
            // The root is in the superblock's page, or inside a block. That block is reached, and
            // its words are read too.
            location => {
                if let Location::Block(number, _) = location {
                    self.mark(number, Spot { holder: ROOT, offset: u64::MAX }, Content::Raw);
                    self.queue.push_back(Visit { number, content: Content::Raw, count: 1 });
                }
                let spot = Spot { holder: ROOT, offset: 0 };
                match content {
                    Content::Value(root) => {
                        self.count(root, 1);
                        self.value(root, address, bytes, spot)
                    }
                    _ => self.conservative(address, bytes, spot),
                }
            }
        }
    }

    fn all(&mut self) -> Result<()> {
        loop {
            while let Some(visit) = self.queue.pop_front() {
                if let Some(block) = self.walked.blocks.block(visit.number) {
                    self.visit(&visit, block)?;
                }
            }
            let Some(Deferred { number, content, spot }) = self.deferred.pop_front() else {
                return Ok(());
            };
            if !self.walked.is_reached(number) {
                self.mark(number, spot, content);
                self.queue.push_back(Visit { number, content, count: 1 });
            }
        }
    }

    fn visit(&mut self, visit: &Visit, block: Block) -> Result<()> {
        let spot = |offset| Spot { holder: block.number, offset };
        match visit.content {
            Content::Bytes => Ok(()),
            Content::Raw => self.conservative(block.address, block.bytes, spot(0)),
            Content::Value(is) => {
                self.count(is, 1);
                self.value(is, block.address, block.bytes, spot(0))
            }
            Content::Elements(is) => {
                self.count(is, visit.count);
                let Some(size) = self.schema.at(is).size else {
                    return self.conservative(block.address, block.bytes, spot(0));
                };
                if !self.schema.at(is).has_pointers {
                    return Ok(());
                }
                for offset in (0..visit.count).map(|index| index * size) {
                    self.value(is, block.address + offset, size, spot(offset))?;
                }
                Ok(())
            }
            Content::Entries(key, value) => self.entries((key, value), visit.count, block),
            Content::Node(key, value, level) => self.node((key, value), level, block),
        }
    }

    fn entries(
        &mut self,
        (key, value): (TypeNumber, TypeNumber),
        count: u64,
        block: Block,
    ) -> Result<()> {
        let Some((key_at, value_at, stride)) = self.schema.entry(key, value) else {
            let spot = Spot { holder: block.number, offset: 0 };
            return self.conservative(block.address, block.bytes, spot);
        };
        let mut live = 0;
        for offset in (0..count).map(|index| index * stride) {
            let address = block.address + offset;
            if matches!(self.memory.word(address)?, None | Some(0)) {
                continue;
            }
            live += 1;
            for (is, at) in [(key, key_at), (value, value_at)] {
                let spot = Spot { holder: block.number, offset: offset + at };
                let bytes = self.schema.at(is).size.unwrap_or(0);
                self.value(is, address + at, bytes, spot)?;
            }
        }
        self.count(key, live);
        self.count(value, live);
        Ok(())
    }

    fn node(
        &mut self,
        (key, value): (TypeNumber, TypeNumber),
        level: u64,
        block: Block,
    ) -> Result<()> {
        let spot = |offset| Spot { holder: block.number, offset };
        let Some(node) = self.schema.node(key, value) else {
            return self.conservative(block.address, block.bytes, spot(0));
        };
        let stored_len = self.read(block.address)? & 0xffff;
        let len = stored_len.min(NODE_ENTRIES);
        if stored_len > NODE_ENTRIES {
            self.defect(Defect::Broken, (block.address, block.address), spot(0));
        }
        for (is, (first, bytes)) in [(key, node.keys), (value, node.values)] {
            self.count(is, len);
            for at in (0..len).map(|index| first + index * bytes) {
                self.value(is, block.address + at, bytes, spot(at))?;
            }
        }
        if level > 1 {
            for at in (0..=len).map(|index| node.children_at + index * 8) {
                self.child((key, value), level - 1, block.address + at, spot(at))?;
            }
        }
        Ok(())
    }

    /// Follows a pointer to a tree node.
    fn child(
        &mut self,
        (key, value): (TypeNumber, TypeNumber),
        level: u64,
        address: u64,
        spot: Spot,
    ) -> Result<()> {
        let node = self.schema.node(key, value);
        let bytes = node.map_or(0, |node| match level {
            1 => node.leaf_bytes,
            _ => node.children_at + (NODE_ENTRIES + 1) * 8,
        });
        let to = self.read(address)?;
        let content = Content::Node(key, value, level);
        let owned = Owned { content, count: 1, bytes: Some(bytes), stride: bytes };
        self.owner((address, to), spot, owned);
        Ok(())
    }

    fn tree(&mut self, of: (TypeNumber, TypeNumber), address: u64, spot: Spot) -> Result<()> {
        let (root, len) = (self.read(address)?, self.read(address + 8)?);
        let height = self.read(address + 16)? & u64::from(u32::MAX);
        if root == 0 && len == 0 && height == 0 {
            return Ok(());
        }
        if root == 0 || !(1..=HEIGHT_MAX).contains(&height) {
            self.defect(Defect::Broken, (address, root), spot);
            return Ok(());
        }
        self.child(of, height, address, spot)
    }

    /// Examines a value of at most `room` bytes.
    fn value(&mut self, is: TypeNumber, address: u64, room: u64, spot: Spot) -> Result<()> {
        let schema = self.schema;
        let of = schema.at(is);
        if !of.has_pointers {
            return Ok(());
        }
        match &of.kind {
            Kind::Plain => Ok(()),
            Kind::Unknown => self.conservative(address, of.size.unwrap_or(room).min(room), spot),
            Kind::Struct(fields) => fields.iter().try_for_each(|field: &Field| {
                let room = field.end - field.offset;
                self.value(field.is, address + field.offset, room, shifted(spot, field.offset))
            }),
            Kind::Array(element, len) => {
                let size = schema.at(*element).size.unwrap_or(0);
                (0..*len)
                    .map(|index| index * size)
                    .try_for_each(|at| self.value(*element, address + at, size, shifted(spot, at)))
            }
            Kind::Vec(element) => self.vector(Content::Elements(*element), *element, address, spot),
            Kind::String => self.string(address, spot),
            Kind::Map(key, value) => self.map((*key, *value), address, spot),
            Kind::Tree(key, value) => self.tree((*key, *value), address, spot),
            Kind::Box(of, may_be_none) => self.boxed(*of, *may_be_none, address, spot),
            Kind::Ptr(of) => self.pointer(*of, address, spot),
        }
    }

    fn read(&mut self, address: u64) -> Result<u64> {
        Ok(self.memory.word(address)?.unwrap_or(0))
    }

    /// Examines a string, whose text lies in a block unless its last byte says otherwise.
    fn string(&mut self, address: u64, spot: Spot) -> Result<()> {
        let last = self.read(address + 16)?;
        match StringPlace::of(last) {
            StringPlace::Block => self.vector(Content::Bytes, usize::MAX, address, spot)?,
            StringPlace::Here(_) => {}
            StringPlace::Damaged => self.defect(Defect::Broken, (address + 16, last), spot),
        }
        Ok(())
    }

    fn vector(
        &mut self,
        content: Content,
        element: TypeNumber,
        address: u64,
        spot: Spot,
    ) -> Result<()> {
        let value = self.read(address)?;
        let (len, capacity) = (self.read(address + 8)?, self.read(address + 16)?);
        let size = match content {
            Content::Bytes => Some(1),
            _ => self.schema.at(element).size,
        };
        if value == 0 {
            // Values of size zero need no block, but they count.
            let sound = capacity == 0 && (len == 0 || size == Some(0));
            if !sound {
                self.defect(Defect::Broken, (address, value), spot);
            } else if len > 0 && content != Content::Bytes {
                self.count(element, len);
            }
            return Ok(());
        }
        if len > capacity {
            self.defect(Defect::Broken, (address, value), spot);
        }
        let bytes = size.map_or(Some(0), |size| capacity.checked_mul(size));
        let stride = size.unwrap_or(0);
        let owned = Owned { content, count: len.min(capacity), bytes, stride };
        self.owner((address, value), spot, owned);
        Ok(())
    }

    fn map(
        &mut self,
        (key, value): (TypeNumber, TypeNumber),
        address: u64,
        spot: Spot,
    ) -> Result<()> {
        let (entries, cells) = (self.read(address)?, self.read(address + 8)?);
        let used = self.read(address + 24)? & u64::from(u32::MAX);
        let bits = self.read(address + 32)? & u64::from(u32::MAX);
        if bits == 0 {
            if entries != 0 || cells != 0 || used != 0 {
                self.defect(Defect::Broken, (address, entries), spot);
            }
            return Ok(());
        }
        let limit = if (3..=31).contains(&bits) { 3u64 << (bits - 2) } else { 0 };
        if used > limit {
            self.defect(Defect::Broken, (address, entries), spot);
        }
        let stride = self.schema.entry(key, value).map_or(0, |(_, _, stride)| stride);
        let bytes = limit.checked_mul(stride);
        let content = Content::Entries(key, value);
        let owned = Owned { content, count: used.min(limit), bytes, stride };
        self.owner((address, entries), spot, owned);
        let bytes = if limit == 0 { Some(0) } else { Some(4 << bits) };
        let owned = Owned { content: Content::Bytes, count: 0, bytes, stride: 0 };
        self.owner((address + 8, cells), shifted(spot, 8), owned);
        Ok(())
    }

    fn boxed(&mut self, of: TypeNumber, may_be_none: bool, address: u64, spot: Spot) -> Result<()> {
        let value = self.read(address)?;
        if value == 0 {
            if !may_be_none {
                self.defect(Defect::Broken, (address, value), spot);
            }
            return Ok(());
        }
        let size = self.schema.at(of).size;
        let content = if size.is_some() { Content::Value(of) } else { Content::Raw };
        let owned = Owned { content, count: 1, bytes: size.or(Some(0)), stride: size.unwrap_or(0) };
        self.owner((address, value), spot, owned);
        Ok(())
    }

    /// Examines a pointer that does not own its target.
    fn pointer(&mut self, of: TypeNumber, address: u64, spot: Spot) -> Result<()> {
        let value = self.read(address)?;
        if value == 0 {
            return Ok(());
        }
        let location = self.report((address, value), spot, Evidence::Pointer);
        if let Location::Block(number, offset) = location {
            let bytes = self.walked.blocks.block(number).map_or(0, |block| block.bytes);
            let fits = self.schema.at(of).size.is_some_and(|size| size <= bytes);
            let content = match offset == 0 && fits {
                true => Content::Value(of),
                false => Content::Raw,
            };
            if !self.walked.is_reached(number) {
                self.deferred.push_back(Deferred { number, content, spot });
            }
        }
        Ok(())
    }

    /// Follows an owning pointer.
    fn owner(&mut self, (address, value): (u64, u64), spot: Spot, owned: Owned) {
        let location = self.report((address, value), spot, Evidence::Owner);
        let Location::Block(number, offset) = location else { return };
        let Some(block) = self.walked.blocks.block(number) else { return };
        if offset != 0 {
            // Reported by `report` already. The content of the block is unknown.
            if !self.walked.is_reached(number) {
                self.deferred.push_back(Deferred { number, content: Content::Raw, spot });
            }
            return;
        }
        if !self.own(number) {
            self.defect(Defect::Shared, (address, value), spot);
            return;
        }
        let fits = owned.bytes.is_some_and(|bytes| bytes <= block.bytes);
        if !fits {
            self.defect(Defect::Broken, (address, value), spot);
        }
        let room = block.bytes.checked_div(owned.stride).unwrap_or(u64::MAX);
        let is_whole = fits || !matches!(owned.content, Content::Value(_) | Content::Node(..));
        let content = if is_whole { owned.content } else { Content::Raw };
        // A pointer of an earlier round may have reached the block. The owner knows its content.
        self.mark(number, spot, content);
        let count = owned.count.min(room);
        self.queue.push_back(Visit { number, content, count });
    }

    fn conservative(&mut self, address: u64, bytes: u64, spot: Spot) -> Result<()> {
        let end = address.saturating_add(bytes);
        let mut at = address.next_multiple_of(8);
        let mut words = std::mem::take(&mut self.words);
        while at < end && end - at >= 8 {
            let next = self.memory.words(at, end, &mut words)?;
            self.walked.looked_at += (next - at) / 8;
            for &(at, value) in &words {
                self.word((at, value), shifted(spot, at - address));
            }
            at = next;
        }
        self.words = words;
        Ok(())
    }

    fn word(&mut self, (address, value): (u64, u64), spot: Spot) {
        if !(ADDRESS_MIN..ADDRESS_END).contains(&value) {
            return;
        }
        let location = self.walked.blocks.locate(value);
        let pointer = Pointer { spot, address, value, location, evidence: Evidence::Word };
        self.visitor.pointer(&pointer);
        let Location::Block(number, offset) = location else { return };
        self.walked.interior += u64::from(offset != 0);
        if self.walked.is_reached(number) {
            return;
        }
        match self.is_typed {
            true => self.deferred.push_back(Deferred { number, content: Content::Raw, spot }),
            // Without types no block has an owner, so the first word that leads here is its parent.
            false => {
                self.mark(number, spot, Content::Raw);
                self.queue.push_back(Visit { number, content: Content::Raw, count: 1 });
            }
        }
    }

    fn report(&mut self, (address, value): (u64, u64), spot: Spot, evidence: Evidence) -> Location {
        let location = self.walked.blocks.locate(value);
        self.walked.looked_at += 1;
        if matches!(location, Location::Block(_, offset) if offset != 0) {
            self.walked.interior += 1;
        }
        self.visitor.pointer(&Pointer { spot, address, value, location, evidence });
        location
    }

    fn defect(&mut self, defect: Defect, (address, value): (u64, u64), spot: Spot) {
        let location = self.walked.blocks.locate(value);
        let pointer = Pointer { spot, address, value, location, evidence: Evidence::Owner };
        self.visitor.defect(defect, &pointer);
    }

    /// Records that a block has an owner. Returns false if it had one already.
    fn own(&mut self, number: u32) -> bool {
        !self.is_typed || self.owned.set(number.into())
    }

    fn mark(&mut self, number: u32, spot: Spot, content: Content) {
        let at = number as usize;
        // Cannot overflow: a description of one page has hundreds of types at most.
        let next = self.walked.kinds.len() as u16;
        let kind = match self.kind_numbers.get(&content) {
            Some(known) => *known,
            None => {
                self.kind_numbers.insert(content, next);
                self.walked.kinds.push(content);
                next
            }
        };
        self.walked.parents[at] = spot.holder;
        self.walked.offsets[at] = u32::try_from(spot.offset / 8).unwrap_or(u32::MAX);
        self.walked.contents[at] = kind;
    }

    fn count(&mut self, is: TypeNumber, times: u64) {
        for &(part, count) in self.contained.get(is).into_iter().flatten() {
            let sum = &mut self.walked.values[part];
            *sum = sum.saturating_add(count.saturating_mul(times));
        }
    }
}

fn shifted(spot: Spot, bytes: u64) -> Spot {
    Spot { offset: spot.offset.saturating_add(bytes), ..spot }
}

/// First address that programs can use. The kernel keeps the pages below unmapped.
pub(in crate::tools) const ADDRESS_MIN: u64 = 0x1_0000;
/// End of the addresses that programs can use: 47 bits.
pub(in crate::tools) const ADDRESS_END: u64 = 1 << 47;
