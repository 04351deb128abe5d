/* A plugin for qemu's user mode: which blocks of instructions a program runs, and how often.
 *
 *   gcc -shared -fPIC -O2 -o libblocks.so blocks.c
 *   qemu-aarch64 -plugin ./libblocks.so,out=counts.txt PROGRAM
 *
 * Each line of the file is: times run, symbol, instructions in hexadecimal, one word each. Counts
 * are exact if one thread runs at a time. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* qemu's interface, version 1 (before qemu 9), as far as it is used here. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id,
                                                  void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *,
                                                     uint64_t);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct block {
  struct block *next;
  uint64_t times;
  char *text;
};

static struct block *blocks;
static const char *path = "blocks.txt";

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(tb);
  struct block *block = calloc(1, sizeof *block);
  const char *symbol = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
  size_t size = 0;
  FILE *text = block ? open_memstream(&block->text, &size) : NULL;
  if (!text)
    abort();
  fputs(symbol && *symbol ? symbol : "?", text);
  for (size_t i = 0; i < count; i++) {
    const struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);
    const unsigned char *bytes = qemu_plugin_insn_data(instruction);
    fputc(' ', text);
    for (size_t at = 0; at < qemu_plugin_insn_size(instruction); at++)
      fprintf(text, "%02x", bytes[at]);
  }
  if (fclose(text))
    abort();
  block->next = __atomic_load_n(&blocks, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&blocks, &block->next, block, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &block->times, 1);
}

static void ended(plugin_id id, void *data) {
  (void)id, (void)data;
  FILE *out = fopen(path, "w");
  if (!out)
    abort();
  for (const struct block *block = blocks; block; block = block->next)
    if (block->times)
      fprintf(out, "%" PRIu64 " %s\n", block->times, block->text);
  if (ferror(out) | fclose(out))
    abort();
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info,
                                                               int count, char **arguments) {
  (void)info;
  for (int i = 0; i < count; i++)
    if (!strncmp(arguments[i], "out=", 4))
      path = strdup(arguments[i] + 4);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
