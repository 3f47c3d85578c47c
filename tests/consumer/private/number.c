/* The library of a plugin's own. */
int private_number(void);
int private_number(void)
{
    return 42;
}
