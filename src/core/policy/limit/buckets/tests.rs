use super::*;

#[test]
fn keys_are_hashed_as_they_are_looked_up() {
    let hasher = RandomState::default();
    let parts = ["a", "", "b__c"];
    let borrowed: &dyn Parts = &parts;
    let key = Key(parts.map(Box::from));
    assert_eq!(hasher.hash_one(&key), hasher.hash_one(borrowed));
    assert!(*Borrow::<dyn Parts>::borrow(&key) == *borrowed);
}
