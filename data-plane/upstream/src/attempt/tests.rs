mod corpus;
mod plain;
mod stream;
mod timing;
mod wire;
