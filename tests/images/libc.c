// The libc.so.6 of an image: what counts are the versions that it defines (VERSION.map).
int switchyard_image_function(void) { return 0; }
