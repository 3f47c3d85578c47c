/* A plugin without its entry. */
int nothing(void);
int nothing(void)
{
    return 0;
}
