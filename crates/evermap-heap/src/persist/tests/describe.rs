//! Descriptions and ids are part of the file format: the golden values here may only be extended.

use std::marker::PhantomData;

use crate::persist::{
    PBTree, PBox, PMap, PString, PVec, Persist, Ptr, TypeId128, type_description, type_id,
};

#[derive(crate::Persist)]
#[repr(C)]
struct Notes {
    lines: PVec<PString>,
    count: u64,
}

#[derive(crate::Persist)]
#[repr(C)]
struct Tree {
    small: u8,
    key: [u32; 3],
    left: Option<PBox<Tree>>,
    parent: Ptr<Tree>,
    kind: Kind,
    by_name: PMap<PString, Notes>,
}

#[derive(Clone, Copy, crate::Persist, crate::Plain)]
#[repr(i16)]
#[allow(dead_code)]
enum Kind {
    Leaf = -1,
    Branch,
    Other = 300,
}

#[derive(crate::Persist)]
#[repr(C)]
struct Pair<A, B, const N: usize> {
    one: A,
    others: [B; N],
}

#[derive(crate::Persist)]
#[repr(transparent)]
#[persist(name = "app.Id")]
struct Renamed(u64, PhantomData<Notes>);

mod other {
    #[derive(crate::Persist)]
    #[repr(C)]
    pub struct Notes {
        pub text: super::PString,
    }
}

#[derive(crate::Persist)]
#[repr(C)]
struct Both {
    one: Notes,
    other: other::Notes,
    again: PBox<Notes>,
}

#[derive(crate::Persist)]
#[repr(C)]
struct Nothing;

fn assert_described<T: Persist>(text: &str, id: &str) {
    assert_eq!(type_description::<T>(), text);
    assert_eq!(type_id::<T>().to_string(), id, "{text}");
}

#[test]
fn descriptions_and_ids_are_the_golden_ones() {
    assert_described::<Notes>(
        "Notes{lines@0:PVec<PString>,count@24:u64}#32/8",
        "1bebb1748ce3c946809cfb474752cbb8",
    );
    assert_described::<Tree>(
        "Tree{small@0:u8,key@4:[u32;3],left@16:Option<PBox<Tree>>,parent@24:Ptr<Tree>,kind@32:Kind,\
         by_name@40:PMap<PString,Notes>}#80/8;Kind{Leaf=-1,Branch=0,Other=300}:i16#2/2;\
         Notes{lines@0:PVec<PString>,count@24:u64}#32/8",
        "d29dffa0259218eb55b37e0d6ddd8bed",
    );
    assert_described::<Pair<Notes, u16, 3>>(
        "Pair<Notes,u16,3>{one@0:Notes,others@32:[u16;3]}#40/8;\
         Notes{lines@0:PVec<PString>,count@24:u64}#32/8",
        "8f5d272cb97e5a9770da6815183b19f0",
    );
    assert_described::<Renamed>(
        "app.Id{0@0:u64,1@8:PhantomData<Notes>}#8/8;Notes{lines@0:PVec<PString>,count@24:u64}#32/8",
        "fadd3f04a2f3c8e6405bd789decf280f",
    );
    assert_described::<Both>(
        "Both{one@0:Notes,other@32:Notes'2,again@56:PBox<Notes>}#64/8;\
         Notes{lines@0:PVec<PString>,count@24:u64}#32/8;Notes'2{text@0:PString}#24/8",
        "d2ce89e0f8d712a61603b770ed601393",
    );
    assert_described::<PVec<Notes>>(
        "PVec<Notes>#24/8;Notes{lines@0:PVec<PString>,count@24:u64}#32/8",
        "4b22187e3ad01b57de93e1728d4b2344",
    );
    assert_described::<PBTree<u64, PString>>(
        "PBTree<u64,PString>#24/8",
        "cf1a9cf8662aaa8ca7b367bcbb22fd31",
    );
    assert_described::<u128>("u128#16/16", "aeae21ba8a1b8ccd43da8ae738bd56a7");
    assert_described::<Nothing>("Nothing{}#0/1", "1404107d3e020e7285bf9623a6b941d9");
}

#[test]
fn the_order_in_which_types_are_met_does_not_matter() {
    let alone: TypeId128 = type_id::<other::Notes>();
    let _ = type_id::<Both>();
    assert_eq!(type_description::<other::Notes>(), "Notes{text@0:PString}#24/8");
    assert_eq!(type_id::<other::Notes>(), alone);
}

#[test]
fn a_change_of_name_type_or_order_changes_the_id() {
    mod changed {
        use super::{PString, PVec};

        #[derive(crate::Persist)]
        #[repr(C)]
        #[persist(name = "Notes")]
        pub struct Name {
            pub line: PVec<PString>,
            pub count: u64,
        }

        #[derive(crate::Persist)]
        #[repr(C)]
        #[persist(name = "Notes")]
        pub struct Type {
            pub lines: PVec<PString>,
            pub count: i64,
        }

        #[derive(crate::Persist)]
        #[repr(C)]
        #[persist(name = "Notes")]
        pub struct Order {
            pub count: u64,
            pub lines: PVec<PString>,
        }

        #[derive(crate::Persist)]
        #[repr(C)]
        #[persist(name = "Notes")]
        pub struct Same {
            pub lines: PVec<PString>,
            pub count: u64,
        }
    }
    assert_ne!(type_id::<changed::Name>(), type_id::<Notes>());
    assert_ne!(type_id::<changed::Type>(), type_id::<Notes>());
    assert_ne!(type_id::<changed::Order>(), type_id::<Notes>());
    assert_eq!(type_id::<changed::Same>(), type_id::<Notes>());
}
