mod plain;
mod stream;
mod timing;
mod wire;
