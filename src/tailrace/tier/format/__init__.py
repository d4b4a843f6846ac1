"""What lies in the store, as bytes and names. Pure: needs neither a broker nor a store to be understood."""
