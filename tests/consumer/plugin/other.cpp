/* Has a symbol that must not be seen outside. */
int hidden_in_cpp() { return 1; }
