use super::*;

#[test]
fn keys_are_hashed_as_they_are_looked_up() {
    let hasher = RandomState::default();
    let parts = ["a", "", "b__c"];
    let borrowed: &dyn KeyParts = &parts;
    let key = BucketKey(parts.map(Box::from));
    assert_eq!(hasher.hash_one(&key), hasher.hash_one(borrowed));
    assert!(*Borrow::<dyn KeyParts>::borrow(&key) == *borrowed);
}
