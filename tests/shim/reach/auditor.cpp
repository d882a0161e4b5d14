// An auditor of programs (LD_AUDIT), as tools of clusters have one.
extern "C" unsigned la_version(unsigned version);
unsigned la_version(unsigned version) { return version; }
