/* A user's program: asks the model in argv[1] for a sum with hocket_generate, and once more with a bad temperature, which
 * must be refused. Prints the answer, the error, and the sizes of the structs that it was compiled with. */
#include <hocket/hocket.h>
#include <stdio.h>
#include <string.h>

struct heard {
  char text[4096];
  size_t length;
  int finish;
};

static int hear(const hocket_event* event, void* user) {
  struct heard* heard = user;
  if (heard->length + event->text_length < sizeof heard->text) {
    memcpy(heard->text + heard->length, event->text, event->text_length);
    heard->length += event->text_length;
  }
  heard->finish = event->finish;
  return 0;
}

static int stop(const char* what) {
  fprintf(stderr, "%s: %s (%s)\n", what, hocket_error_message(), hocket_error_fix());
  return 1;
}

int main(int argc, char** argv) {
  const char* chat = "[{\"role\": \"user\", \"content\": \"What is 17 + 25?\"}]";
  hocket_options* options = hocket_options_new();
  hocket_engine* engine = NULL;
  hocket_tokens prompt = {NULL, 0};
  hocket_request request;
  struct heard heard;
  if (argc != 2) return 2;
  if (hocket_options_set(options, "model-path", argv[1])) return stop("model-path");
  if (hocket_options_set(options, "max-total-tokens", "8192")) return stop("max-total-tokens");
  if (hocket_engine_open(options, &engine)) return stop("open");
  hocket_options_free(options);

  if (hocket_chat_tokens(engine, chat, NULL, &prompt)) return stop("chat");
  memset(&request, 0, sizeof request);
  request.struct_size = sizeof request;
  if (hocket_request_init(engine, &request)) return stop("init");
  request.prompt = prompt.data;
  request.prompt_count = prompt.count;
  request.temperature = 0;
  memset(&heard, 0, sizeof heard);
  if (hocket_generate(engine, &request, hear, &heard)) return stop("generate");
  printf("%s finish=%d\n", heard.text, heard.finish);
  printf("sizes info=%zu request=%zu event=%zu\n", sizeof(hocket_info), sizeof(hocket_request), sizeof(hocket_event));
  printf("version %s api %d\n", hocket_version(), hocket_api_version());

  request.temperature = -1;
  if (hocket_generate(engine, &request, hear, &heard) != HOCKET_ERROR_INVALID_REQUEST) return stop("a bad temperature");
  printf("refused: %s\n", hocket_error_message());
  hocket_tokens_free(&prompt);
  return hocket_engine_close(engine);
}
