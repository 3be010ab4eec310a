mod damage;
mod keeping;
mod killed;
mod scene;
mod standing;
