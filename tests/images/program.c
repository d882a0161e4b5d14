// A program of an image. Its loader never comes to it.
int switchyard_image_function(void);
void _start(void) { switchyard_image_function(); }
