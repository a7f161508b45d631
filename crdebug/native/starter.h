/* What the starter's two parts have of each other. */
#ifndef CRDEBUG_STARTER_H
#define CRDEBUG_STARTER_H

/* Brings `lo` up in this process's network namespace; -1 with errno. */
int raise_loopback(void);

/* The CRS's action script: `path` is crdebug's socket. Returns an exit status. */
int crs_action(const char *path);

#endif
