/* A host's verbs by remote control: lines over TCP in, lines out. README.md beside this file is the
 * protocol. It calls libibverbs, and joins IP groups: it opens no file but the counters of its device,
 * and starts no program but one that its command line names. Each connection is a process of its own,
 * with which everything goes that it made. It never polls a queue without end: it sleeps on completion
 * channels. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL 1
#define PORT "7471"
#define MOST 64      /* objects of a kind, elements of a list, completions at once */
#define WORDS 64     /* words of a line */
#define LINE 65536

/* ---- the line: a verb and key=value words ------------------------------------------------- */

static FILE *in, *out;
static char *verb, *keys[WORDS], *values[WORDS];
static int words;

static void ok(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fputs("ok", out);
	vfprintf(out, format, list);
	va_end(list);
}

/* A refusal: the number of errno, and what was refused. */
static void refuse(int number, const char *what)
{
	fprintf(out, "error %d %s: %s", number, what, strerror(number));
}

static int split(char *line)
{
	char *save, *word;
	verb = strtok_r(line, " \r\n", &save);
	for (words = 0; verb && (word = strtok_r(NULL, " \r\n", &save)); words++) {
		char *is = strchr(word, '=');
		if (words == WORDS || !is)
			return 0;
		*is = 0;
		keys[words] = word;
		values[words] = is + 1;
	}
	return verb != NULL;
}

static const char *text(const char *key)
{
	for (int i = 0; i < words; i++)
		if (!strcmp(keys[i], key))
			return values[i];
	return NULL;
}

static uint64_t number(const char *key, uint64_t otherwise)
{
	const char *value = text(key);
	return value ? strtoull(value, NULL, 0) : otherwise;
}

static int gid(const char *key, union ibv_gid *into)
{
	const char *value = text(key);
	return value && inet_pton(AF_INET6, value, into->raw) == 1;
}

/* ---- what a connection has made ----------------------------------------------------------- */

struct region {
	struct ibv_mr *mr;
	unsigned char *bytes;
	uint64_t len;
	void *block; /* What is freed; nothing if the bytes are another region's. */
};

struct queue {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
};

static struct ibv_context *context;
static struct ibv_pd *pds[MOST];
static struct region mrs[MOST];
static struct queue cqs[MOST];
static struct ibv_srq *srqs[MOST];
static struct ibv_qp *qps[MOST];
static struct ibv_ah *ahs[MOST];
static struct ibv_mw *mws[MOST];

/* The object with the number that a word says, or nothing. */
#define OBJECT(table, key) (number(key, MOST) < MOST ? table[number(key, MOST)] : NULL)

static struct region *region(const char *key)
{
	uint64_t at = number(key, MOST);
	return at < MOST && mrs[at].mr ? &mrs[at] : NULL;
}

static struct queue *queue(const char *key)
{
	uint64_t at = number(key, MOST);
	return at < MOST && cqs[at].cq ? &cqs[at] : NULL;
}

/* Makes an object, and puts it into the first free place of its table. */
#define KEEP(table, name, make, ...)                                     \
	do {                                                             \
		int at = 0;                                              \
		while (at < MOST && table[at])                           \
			at++;                                            \
		if (at == MOST)                                          \
			return refuse(ENOSPC, verb);                     \
		table[at] = (make);                                      \
		if (!table[at])                                          \
			return refuse(errno, verb);                      \
		ok(" " name "=%d", at);                                  \
		fprintf(out, __VA_ARGS__);                               \
	} while (0)

/* ---- device ------------------------------------------------------------------------------- */

static void do_hello(void)
{
	struct utsname host;
	uname(&host);
	ok(" protocol=%d kernel=%s", PROTOCOL, host.release);
}

static void do_devices(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	ok(" n=%d", count);
	for (int i = 0; i < count; i++)
		fprintf(out, " dev=%s", ibv_get_device_name(list[i]));
	if (list)
		ibv_free_device_list(list);
}

static void do_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *name = text("dev");
	struct ibv_device_attr limits;
	struct ibv_port_attr port;
	if (context)
		return refuse(EBUSY, "open");
	for (int i = 0; list && list[i] && !context; i++)
		if (!name || !strcmp(name, ibv_get_device_name(list[i])))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!context)
		return refuse(ENODEV, "open");
	if (ibv_query_device(context, &limits) || ibv_query_port(context, 1, &port))
		return refuse(errno, "query");
	ok(" dev=%s fw=%s state=%d active_mtu=%d max_msg=%u gids=%d max_rd_atomic=%d max_srq=%d "
	   "max_mw=%d atomic=%d vendor=0x%x part=%u",
	   ibv_get_device_name(context->device), limits.fw_ver[0] ? limits.fw_ver : "-", port.state,
	   128 << port.active_mtu, port.max_msg_sz, port.gid_tbl_len, limits.max_qp_rd_atom,
	   limits.max_srq, limits.max_mw, limits.atomic_cap, limits.vendor_id, limits.vendor_part_id);
}

static void do_gids(void)
{
	struct ibv_gid_entry entries[256];
	ssize_t count = ibv_query_gid_table(context, entries, 256, 0);
	if (count < 0)
		return refuse((int)-count, "gids");
	ok(" n=%zd", count);
	for (ssize_t i = 0; i < count; i++) {
		char address[INET6_ADDRSTRLEN], netdev[IF_NAMESIZE] = "-";
		inet_ntop(AF_INET6, entries[i].gid.raw, address, sizeof address);
		if_indextoname(entries[i].ndev_ifindex, netdev);
		fprintf(out, " gid=%u,%s,%u,%s", entries[i].gid_index, address, entries[i].gid_type,
			netdev);
	}
}

/* The counters of the port, and those of the port's hardware. */
static void count(const char *folder)
{
	char path[1024], value[64];
	snprintf(path, sizeof path, "%s/ports/1/%s", context->device->ibdev_path, folder);
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		snprintf(path, sizeof path, "%s/ports/1/%s/%s", context->device->ibdev_path, folder,
			 entry->d_name);
		FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (file && fscanf(file, "%63[0-9]", value) == 1)
			fprintf(out, " %s=%s", entry->d_name, value);
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
}

/* The kernel answers for as many milliseconds as the file says with what it has read before. */
static void outlive_stale_counters(void)
{
	char path[1024];
	unsigned int milliseconds = 0;
	snprintf(path, sizeof path, "%s/ports/1/hw_counters/lifespan",
		 context->device->ibdev_path);
	FILE *file = fopen(path, "r");
	if (file && fscanf(file, "%u", &milliseconds) == 1)
		usleep((milliseconds < 1000 ? milliseconds + 1 : 1000) * 1000);
	if (file)
		fclose(file);
}

static void do_counters(void)
{
	outlive_stale_counters();
	ok("%s", "");
	count("counters");
	count("hw_counters");
}

/* ---- memory ------------------------------------------------------------------------------- */

static void do_pd(void)
{
	KEEP(pds, "pd", ibv_alloc_pd(context), "%s", "");
}

static void do_mr(void)
{
	struct ibv_pd *pd = OBJECT(pds, "pd");
	int at = 0;
	while (at < MOST && mrs[at].mr)
		at++;
	struct region new = { .len = number("len", 4096) }, *of = region("of");
	int access = (int)number("access", IBV_ACCESS_LOCAL_WRITE);
	if (!pd || (text("of") && !of))
		return refuse(EINVAL, "mr");
	if (at == MOST)
		return refuse(ENOSPC, "mr");
	uint64_t va;
	if (of) {
		new = *of;
		new.block = NULL;
		va = (uintptr_t)new.bytes;
	} else {
		if (posix_memalign(&new.block, 4096, new.len + 4096))
			return refuse(ENOMEM, "mr");
		memset(new.block, 0, new.len + 4096);
		/* An address of the caller's choice is where it would be in its page. */
		va = number("iova", (uintptr_t)new.block);
		new.bytes = (unsigned char *)new.block + va % 4096;
	}
	new.mr = text("iova") ? ibv_reg_mr_iova(pd, new.bytes, new.len, va, access)
		: ibv_reg_mr(pd, new.bytes, new.len, access);
	if (!new.mr) {
		int why = errno;
		free(new.block);
		return refuse(why, "mr");
	}
	mrs[at] = new;
	ok(" mr=%d va=0x%" PRIx64 " lkey=0x%x rkey=0x%x", at, va, new.mr->lkey, new.mr->rkey);
}

/* Bytes of a region that the words `mr`, `off` and `len` name. */
static unsigned char *range(uint64_t *len, uint64_t most)
{
	struct region *in_region = region("mr");
	uint64_t off = number("off", 0);
	*len = number("len", 0);
	if (!in_region || *len > most || off > in_region->len || *len > in_region->len - off)
		return NULL;
	return in_region->bytes + off;
}

/* Byte `at` of the pattern of a seed: a byte of a word that looks like chance. */
static unsigned char pattern(uint64_t seed, uint64_t at)
{
	uint64_t word = (seed + at / 8 + 1) * 0x9e3779b97f4a7c15u;
	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
	return (unsigned char)((word ^ word >> 31) >> at % 8 * 8);
}

static void do_fill(void)
{
	uint64_t len, seed = number("seed", 0), skip = number("skip", 0);
	unsigned char *bytes = range(&len, UINT64_MAX);
	if (!bytes)
		return refuse(EINVAL, "fill");
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = pattern(seed, skip + i);
	ok("%s", "");
}

static void do_check(void)
{
	uint64_t len, seed = number("seed", 0), skip = number("skip", 0), wrong = 0, first = 0;
	unsigned char *bytes = range(&len, UINT64_MAX);
	if (!bytes)
		return refuse(EINVAL, "check");
	for (uint64_t i = 0; i < len; i++)
		if (bytes[i] != pattern(seed, skip + i) && !wrong++)
			first = i;
	ok(" wrong=%" PRIu64 " first=%" PRIu64, wrong, first);
}

static void do_peek(void)
{
	uint64_t len;
	unsigned char *bytes = range(&len, 4096);
	if (!bytes)
		return refuse(EINVAL, "peek");
	ok(" %s", "hex=");
	for (uint64_t i = 0; i < len; i++)
		fprintf(out, "%02x", bytes[i]);
}

static void do_poke(void)
{
	struct region *in_region = region("mr");
	const char *hex = text("hex");
	uint64_t off = number("off", 0), len = hex ? strlen(hex) / 2 : 0;
	if (!in_region || off > in_region->len || len > in_region->len - off)
		return refuse(EINVAL, "poke");
	for (uint64_t i = 0; i < len; i++)
		if (sscanf(hex + 2 * i, "%2hhx", &in_region->bytes[off + i]) != 1)
			return refuse(EINVAL, "poke");
	ok("%s", "");
}

static void do_mw(void)
{
	struct ibv_pd *pd = OBJECT(pds, "pd");
	if (!pd)
		return refuse(EINVAL, "mw");
	KEEP(mws, "mw", ibv_alloc_mw(pd, number("type", 2)), " rkey=0x%x", mws[at]->rkey);
}

/* ---- queues ------------------------------------------------------------------------------- */

static void do_cq(void)
{
	int at = 0;
	while (at < MOST && cqs[at].cq)
		at++;
	if (at == MOST)
		return refuse(ENOSPC, "cq");
	struct queue new = { .channel = ibv_create_comp_channel(context) };
	if (new.channel)
		new.cq = ibv_create_cq(context, (int)number("depth", 256), NULL, new.channel, 0);
	if (!new.cq) {
		int why = errno;
		if (new.channel)
			ibv_destroy_comp_channel(new.channel);
		return refuse(why, "cq");
	}
	cqs[at] = new;
	ok(" cq=%d", at);
}

static void do_srq(void)
{
	struct ibv_pd *pd = OBJECT(pds, "pd");
	struct ibv_srq_init_attr want = {
		.attr = { .max_wr = number("depth", 64), .max_sge = number("sge", 1) }
	};
	if (!pd)
		return refuse(EINVAL, "srq");
	KEEP(srqs, "srq", ibv_create_srq(pd, &want), "%s", "");
}

static void do_qp(void)
{
	struct ibv_pd *pd = OBJECT(pds, "pd");
	struct queue *sends = queue("cq"), *receives = text("rcq") ? queue("rcq") : sends;
	const char *type = text("type");
	if (!pd || !sends || !receives || !type)
		return refuse(EINVAL, "qp");
	struct ibv_qp_init_attr want = {
		.send_cq = sends->cq,
		.recv_cq = receives->cq,
		.srq = OBJECT(srqs, "srq"),
		.qp_type = !strcmp(type, "rc") ? IBV_QPT_RC : !strcmp(type, "uc") ? IBV_QPT_UC : IBV_QPT_UD,
		.sq_sig_all = (int)number("sigall", 0),
		.cap = {
			.max_send_wr = number("send", 64),
			.max_recv_wr = number("recv", 64),
			.max_send_sge = number("ssge", 1),
			.max_recv_sge = number("rsge", 1),
			.max_inline_data = number("inline", 0),
		},
	};
	if (text("srq") && !want.srq)
		return refuse(EINVAL, "qp");
	KEEP(qps, "qp", ibv_create_qp(pd, &want), " qpn=0x%x", qps[at]->qp_num);
}

static enum ibv_mtu mtu(uint64_t bytes)
{
	return bytes <= 256 ? IBV_MTU_256 : bytes <= 512 ? IBV_MTU_512 : bytes <= 1024 ? IBV_MTU_1024
		: bytes <= 2048 ? IBV_MTU_2048 : IBV_MTU_4096;
}

/* Where packets go: the words `dgid`, `sgid`, `hops`, `tclass`, `flow`, `sl`. */
static int path(struct ibv_ah_attr *path)
{
	memset(path, 0, sizeof *path);
	path->is_global = 1;
	path->port_num = 1;
	path->sl = number("sl", 0);
	path->grh.sgid_index = number("sgid", 0);
	path->grh.hop_limit = number("hops", 64);
	path->grh.traffic_class = number("tclass", 0);
	path->grh.flow_label = number("flow", 0);
	return gid("dgid", &path->grh.dgid);
}

static const char *const STATES[] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "error" };

/* An attribute is set where a word says it. */
static void do_modify(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	struct ibv_qp_attr to = { 0 };
	int mask = 0;
	if (!qp)
		return refuse(EINVAL, "modify");
#define SET(key, bit, field) \
	if (text(key)) { to.field = number(key, 0); mask |= bit; }
	const char *state = text("state");
	for (int i = 0; state && i < 7; i++)
		if (!strcmp(state, STATES[i])) {
			to.qp_state = (enum ibv_qp_state)i;
			mask |= IBV_QP_STATE;
		}
	SET("notify", IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify)
	SET("port", IBV_QP_PORT, port_num)
	SET("pkey", IBV_QP_PKEY_INDEX, pkey_index)
	SET("access", IBV_QP_ACCESS_FLAGS, qp_access_flags)
	SET("qkey", IBV_QP_QKEY, qkey)
	SET("dest", IBV_QP_DEST_QPN, dest_qp_num)
	SET("rq_psn", IBV_QP_RQ_PSN, rq_psn)
	SET("sq_psn", IBV_QP_SQ_PSN, sq_psn)
	SET("dest_rd", IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
	SET("rd", IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic)
	SET("min_rnr", IBV_QP_MIN_RNR_TIMER, min_rnr_timer)
	SET("timeout", IBV_QP_TIMEOUT, timeout)
	SET("retry", IBV_QP_RETRY_CNT, retry_cnt)
	SET("rnr_retry", IBV_QP_RNR_RETRY, rnr_retry)
#undef SET
	if (text("mtu")) {
		to.path_mtu = mtu(number("mtu", 0));
		mask |= IBV_QP_PATH_MTU;
	}
	if (text("dgid")) {
		if (!path(&to.ah_attr))
			return refuse(EINVAL, "dgid");
		mask |= IBV_QP_AV;
	}
	int why = ibv_modify_qp(qp, &to, mask);
	if (why)
		return refuse(why, "modify");
	ok("%s", "");
}

static void do_query(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	struct ibv_qp_attr is;
	struct ibv_qp_init_attr made;
	int why = qp ? ibv_query_qp(qp, &is, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &made)
		: EINVAL;
	if (why)
		return refuse(why, "query");
	ok(" state=%s sq_psn=0x%x rq_psn=0x%x", STATES[is.qp_state], is.sq_psn, is.rq_psn);
}

static void do_ah(void)
{
	struct ibv_pd *pd = OBJECT(pds, "pd");
	struct ibv_ah_attr to;
	if (!pd || !path(&to))
		return refuse(EINVAL, "ah");
	KEEP(ahs, "ah", ibv_create_ah(pd, &to), "%s", "");
}

/* ---- work --------------------------------------------------------------------------------- */

/* `raw=ADDRESS:LEN:LKEY[,ADDRESS:LEN:LKEY…]`: whatever the caller says, right or wrong. */
static int raw_elements(struct ibv_sge *into, const char *at)
{
	int count = 0;
	for (; *at; count++) {
		uint64_t address, len, key;
		int used = 0;
		if (count == MOST || sscanf(at, "%" SCNi64 ":%" SCNi64 ":%" SCNi64 "%n", &address,
					    &len, &key, &used) != 3)
			return -1;
		into[count] = (struct ibv_sge){ .addr = address, .length = (uint32_t)len,
						.lkey = (uint32_t)key };
		at += used;
		at += *at == ',';
	}
	return count;
}

/* `sge=MR:OFF:LEN[,MR:OFF:LEN…]`. Says how many, or -1. */
static int elements(struct ibv_sge *into)
{
	const char *at = text("sge");
	int count = 0;
	if (text("raw"))
		return raw_elements(into, text("raw"));
	for (; at && *at; count++) {
		unsigned mr;
		uint64_t off, len;
		int used = 0;
		if (count == MOST ||
		    sscanf(at, "%u:%" SCNi64 ":%" SCNi64 "%n", &mr, &off, &len, &used) != 3 ||
		    mr >= MOST || !mrs[mr].mr)
			return -1;
		into[count] = (struct ibv_sge){ .addr = (uintptr_t)mrs[mr].bytes + off,
						.length = len, .lkey = mrs[mr].mr->lkey };
		at += used;
		at += *at == ',';
	}
	return count;
}

static void do_recv(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	struct ibv_srq *srq = OBJECT(srqs, "srq");
	struct ibv_sge list[MOST];
	int count = elements(list);
	struct ibv_recv_wr *bad, work = { .wr_id = number("id", 0), .sg_list = list, .num_sge = count };
	int why = count < 0 || (!qp && !srq) ? EINVAL
		: srq ? ibv_post_srq_recv(srq, &work, &bad) : ibv_post_recv(qp, &work, &bad);
	if (why)
		return refuse(why, "recv");
	ok("%s", "");
}

static const struct { const char *name; enum ibv_wr_opcode code; } OPERATIONS[] = {
	{ "send", IBV_WR_SEND }, { "send_imm", IBV_WR_SEND_WITH_IMM },
	{ "send_inv", IBV_WR_SEND_WITH_INV }, { "write", IBV_WR_RDMA_WRITE },
	{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM }, { "read", IBV_WR_RDMA_READ },
	{ "cas", IBV_WR_ATOMIC_CMP_AND_SWP }, { "faa", IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "bind", IBV_WR_BIND_MW }, { "inv", IBV_WR_LOCAL_INV },
};

static void do_send(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	struct ibv_sge list[MOST];
	struct ibv_send_wr *bad, work = { .wr_id = number("id", 0), .sg_list = list };
	const char *operation = text("op"), *flags = text("flags");
	unsigned known = 0;
	work.num_sge = elements(list);
	/* Bytes of the line itself, for what is posted inline. */
	static unsigned char said[LINE / 2];
	if (text("bytes")) {
		uint32_t len = strlen(text("bytes")) / 2;
		for (uint32_t i = 0; i < len; i++)
			if (sscanf(text("bytes") + 2 * i, "%2hhx", &said[i]) != 1)
				return refuse(EINVAL, "bytes");
		list[0] = (struct ibv_sge){ .addr = (uintptr_t)said, .length = len };
		work.num_sge = len != 0;
	}
	while (operation && known < sizeof OPERATIONS / sizeof *OPERATIONS &&
	       strcmp(operation, OPERATIONS[known].name))
		known++;
	if (!qp || !operation || work.num_sge < 0 || known == sizeof OPERATIONS / sizeof *OPERATIONS)
		return refuse(EINVAL, "send");
	work.opcode = OPERATIONS[known].code;
	for (; flags && *flags; flags++)
		work.send_flags |= *flags == 's' ? IBV_SEND_SIGNALED : *flags == 'e' ? IBV_SEND_SOLICITED
			: *flags == 'f' ? IBV_SEND_FENCE : *flags == 'i' ? IBV_SEND_INLINE : 0;
	switch (work.opcode) {
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		work.invalidate_rkey = number("inv", 0);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		work.wr.atomic.remote_addr = number("va", 0);
		work.wr.atomic.rkey = number("rkey", 0);
		work.wr.atomic.compare_add = number(work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? "add"
						     : "compare", 0);
		work.wr.atomic.swap = number("swap", 0);
		break;
	case IBV_WR_BIND_MW: {
		struct region *to = region("mr");
		work.bind_mw.mw = OBJECT(mws, "mw");
		if (!to || !work.bind_mw.mw)
			return refuse(EINVAL, "bind");
		work.bind_mw.rkey = number("rkey", 0);
		/* Who knows that the last binding failed says which key it still has. */
		work.bind_mw.mw->rkey = (uint32_t)number("old", work.bind_mw.mw->rkey);
		work.bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = to->mr,
			.addr = number("va", (uintptr_t)to->bytes + number("off", 0)),
			.length = number("len", 0), .mw_access_flags = (unsigned)number("access", 0) };
		break;
	}
	default:
		work.imm_data = htonl(number("imm", 0));
		work.wr.rdma.remote_addr = number("va", 0);
		work.wr.rdma.rkey = number("rkey", 0);
	}
	if (qp->qp_type == IBV_QPT_UD) {
		work.wr.ud.ah = OBJECT(ahs, "ah");
		work.wr.ud.remote_qpn = number("rqpn", 0);
		work.wr.ud.remote_qkey = number("qkey", 0);
		if (!work.wr.ud.ah)
			return refuse(EINVAL, "ah");
	}
	int why;
	if (work.opcode == IBV_WR_BIND_MW && work.bind_mw.mw->type == IBV_MW_TYPE_1) {
		/* Its key is the adapter's choice. */
		struct ibv_mw_bind bind = { .wr_id = work.wr_id, .send_flags = work.send_flags,
					    .bind_info = work.bind_mw.bind_info };
		why = ibv_bind_mw(qp, work.bind_mw.mw, &bind);
		work.bind_mw.rkey = work.bind_mw.mw->rkey;
	} else {
		why = ibv_post_send(qp, &work, &bad);
	}
	if (why)
		return refuse(why, "send");
	/* A window's next binding names the key of this one. */
	if (work.opcode == IBV_WR_BIND_MW) {
		work.bind_mw.mw->rkey = work.bind_mw.rkey;
		return ok(" rkey=0x%x", work.bind_mw.rkey);
	}
	ok("%s", "");
}

static void told(struct ibv_wc *done, int count);

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Until `n` completions are there, or `ms` have passed. */
static void do_wait(void)
{
	struct queue *from = queue("cq");
	int want = (int)number("n", 1), got = 0;
	int64_t until = now_ms() + (int64_t)number("ms", 5000);
	struct ibv_wc done[MOST];
	if (!from || want < 0 || want > MOST)
		return refuse(EINVAL, "wait");
	for (;;) {
		/* Armed first: what comes after the poll is told of. */
		if (ibv_req_notify_cq(from->cq, 0))
			return refuse(errno, "notify");
		int more = ibv_poll_cq(from->cq, want - got, done + got);
		if (more < 0)
			return refuse(EIO, "poll");
		got += more;
		int64_t left = until - now_ms();
		if (got == want || left <= 0)
			break;
		if (more)
			continue;
		struct pollfd ready = { .fd = from->channel->fd, .events = POLLIN };
		if (poll(&ready, 1, (int)left) > 0) {
			struct ibv_cq *of;
			void *own;
			if (!ibv_get_cq_event(from->channel, &of, &own))
				ibv_ack_cq_events(of, 1);
		}
	}
	told(done, got);
}

static void told(struct ibv_wc *done, int count)
{
	ok(" n=%d", count);
	for (int i = 0; i < count; i++) {
		struct ibv_wc *wc = &done[i];
		uint32_t extra = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data)
			: wc->invalidated_rkey;
		fprintf(out, " wc=%" PRIu64 ",%d,%d,%u,%u,0x%x,0x%x,0x%x", wc->wr_id, wc->status,
			wc->opcode, wc->byte_len, wc->wc_flags, extra, wc->src_qp, wc->qp_num);
	}
}

/* The next asynchronous event, if one comes in `ms`. */
static void do_event(void)
{
	struct pollfd ready = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	if (poll(&ready, 1, (int)number("ms", 0)) <= 0)
		return ok(" n=%d", 0);
	if (ibv_get_async_event(context, &event))
		return refuse(errno, "event");
	ok(" n=1 event=%d", event.event_type);
	for (int i = 0; i < MOST; i++) {
		if (qps[i] && qps[i] == event.element.qp)
			fprintf(out, " qp=%d", i);
		if (cqs[i].cq && cqs[i].cq == event.element.cq)
			fprintf(out, " cq=%d", i);
		if (srqs[i] && srqs[i] == event.element.srq)
			fprintf(out, " srq=%d", i);
	}
	ibv_ack_async_event(&event);
}

/* ---- a queue's own conduct, step by step -------------------------------------------------- */

/* The completions that are there, at most `n`; nothing is armed. */
static void do_poll(void)
{
	struct queue *from = queue("cq");
	int want = (int)number("n", 1);
	struct ibv_wc done[MOST];
	if (!from || want < 0 || want > MOST)
		return refuse(EINVAL, "poll");
	int got = ibv_poll_cq(from->cq, want, done);
	if (got < 0)
		return refuse(EIO, "poll");
	told(done, got);
}

static void do_arm(void)
{
	struct queue *at = queue("cq");
	int why = at ? ibv_req_notify_cq(at->cq, (int)number("solicited", 0)) : EINVAL;
	if (why)
		return refuse(why, "arm");
	ok("%s", "");
}

/* Whether an armed queue told of a completion, once; waits up to `ms`. */
static void do_notified(void)
{
	struct queue *at = queue("cq");
	struct ibv_cq *of;
	void *own;
	if (!at)
		return refuse(EINVAL, "notified");
	struct pollfd ready = { .fd = at->channel->fd, .events = POLLIN };
	if (poll(&ready, 1, (int)number("ms", 0)) <= 0)
		return ok(" n=%d", 0);
	if (ibv_get_cq_event(at->channel, &of, &own))
		return refuse(errno, "notified");
	ibv_ack_cq_events(of, 1);
	ok(" n=%d", 1);
}

static void do_resize(void)
{
	struct queue *at = queue("cq");
	int why = at ? ibv_resize_cq(at->cq, (int)number("depth", 0)) : EINVAL;
	if (why)
		return refuse(why, "resize");
	ok("%s", "");
}

static void do_modify_srq(void)
{
	struct ibv_srq *srq = OBJECT(srqs, "srq");
	struct ibv_srq_attr to = { .max_wr = number("depth", 0), .srq_limit = number("limit", 0) };
	int mask = (text("depth") ? IBV_SRQ_MAX_WR : 0) | (text("limit") ? IBV_SRQ_LIMIT : 0);
	int why = srq ? ibv_modify_srq(srq, &to, mask) : EINVAL;
	if (why)
		return refuse(why, "modify_srq");
	ok("%s", "");
}

/* Other rights or another domain for a region; its memory stays. */
static void do_rereg(void)
{
	struct region *of = region("mr");
	struct ibv_pd *pd = OBJECT(pds, "pd");
	int what = (pd ? IBV_REREG_MR_CHANGE_PD : 0) |
		(text("access") ? IBV_REREG_MR_CHANGE_ACCESS : 0);
	int why = of ? ibv_rereg_mr(of->mr, what, pd, NULL, 0, (int)number("access", 0)) : -1;
	if (why)
		return refuse(of ? errno : EINVAL, "rereg");
	ok(" lkey=0x%x rkey=0x%x", of->mr->lkey, of->mr->rkey);
}

/* ---- groups ------------------------------------------------------------------------------- */

static void do_attach(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	union ibv_gid group;
	int why = qp && gid("gid", &group) ? ibv_attach_mcast(qp, &group, 0) : EINVAL;
	if (why)
		return refuse(why, "attach");
	ok("%s", "");
}

static void do_detach(void)
{
	struct ibv_qp *qp = OBJECT(qps, "qp");
	union ibv_gid group;
	int why = qp && gid("gid", &group) ? ibv_detach_mcast(qp, &group, 0) : EINVAL;
	if (why)
		return refuse(why, "detach");
	ok("%s", "");
}

/* The host's IP stack joins the group: soft adapters need that to receive. */
static void do_join(void)
{
	union ibv_gid group;
	unsigned netdev = text("netdev") ? if_nametoindex(text("netdev")) : 0;
	if (!netdev || !gid("gid", &group))
		return refuse(EINVAL, "join");
	int v4 = IN6_IS_ADDR_V4MAPPED((struct in6_addr *)&group), wrong;
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
	if (v4) {
		struct ip_mreqn join = { .imr_ifindex = (int)netdev };
		memcpy(&join.imr_multiaddr, group.raw + 12, 4);
		wrong = setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join);
	} else {
		struct ipv6_mreq join = { .ipv6mr_interface = netdev };
		memcpy(&join.ipv6mr_multiaddr, group.raw, 16);
		wrong = setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &join, sizeof join);
	}
	if (wrong)
		return refuse(errno, "join");
	ok("%s", "");
}

/* ---- the end of things -------------------------------------------------------------------- */

#define DESTROY(table, key, call)                                                      \
	if (OBJECT(table, key)) {                                                      \
		int why = call(OBJECT(table, key));                                    \
		if (why)                                                               \
			return refuse(why, "destroy");                                 \
		table[number(key, 0)] = NULL;                                          \
		return ok("%s", "");                                                   \
	}

static void do_destroy(void)
{
	DESTROY(ahs, "ah", ibv_destroy_ah)
	DESTROY(qps, "qp", ibv_destroy_qp)
	DESTROY(mws, "mw", ibv_dealloc_mw)
	DESTROY(srqs, "srq", ibv_destroy_srq)
	struct queue *cq = queue("cq");
	struct region *mr = region("mr");
	int why = cq ? ibv_destroy_cq(cq->cq) : mr ? ibv_dereg_mr(mr->mr) : 0;
	if (why)
		return refuse(why, "destroy");
	if (cq) {
		ibv_destroy_comp_channel(cq->channel);
		memset(cq, 0, sizeof *cq);
		return ok("%s", "");
	}
	if (mr) {
		free(mr->block);
		memset(mr, 0, sizeof *mr);
		return ok("%s", "");
	}
	DESTROY(pds, "pd", ibv_dealloc_pd)
	refuse(EINVAL, "destroy");
}

/* ---- the conversation --------------------------------------------------------------------- */

static const struct { const char *name; void (*run)(void); } VERBS[] = {
	{ "devices", do_devices }, { "hello", do_hello }, { "open", do_open },
	/* Those above need no open device. */
	{ "arm", do_arm }, { "modify_srq", do_modify_srq }, { "notified", do_notified },
	{ "poll", do_poll }, { "rereg", do_rereg }, { "resize", do_resize },
	{ "ah", do_ah }, { "attach", do_attach }, { "check", do_check }, { "counters", do_counters },
	{ "cq", do_cq }, { "destroy", do_destroy }, { "detach", do_detach }, { "event", do_event },
	{ "fill", do_fill }, { "gids", do_gids }, { "join", do_join }, { "modify", do_modify },
	{ "mr", do_mr }, { "mw", do_mw }, { "pd", do_pd }, { "peek", do_peek }, { "poke", do_poke },
	{ "qp", do_qp }, { "query", do_query }, { "recv", do_recv }, { "send", do_send },
	{ "srq", do_srq }, { "wait", do_wait },
};

static void converse(int fd)
{
	static char line[LINE];
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	while (in && out && fgets(line, sizeof line, in)) {
		unsigned known = 0, count = sizeof VERBS / sizeof *VERBS;
		int whole = strchr(line, '\n') && split(line);
		while (whole && known < count && strcmp(verb, VERBS[known].name))
			known++;
		if (!whole || known == count)
			refuse(EPROTO, "no such line");
		else if (known > 2 && !context)
			refuse(ENODEV, "open a device first");
		else
			VERBS[known].run();
		fputc('\n', out);
		/* Who sends many lines at once gets the answers at once. */
		fflush(out);
	}
}

/* A program that has a connection as its input and output, as inetd starts them. */
static void hand_over(int fd, char **program)
{
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	dup2(fd, 0);
	dup2(fd, 1);
	close(fd);
	execvp(*program, program);
}

/* A port, and whoever converses in this program's place. */
int main(int count, char **arguments)
{
	int one = 1, listener = socket(AF_INET6, SOCK_STREAM, 0);
	const char *port = count > 1 ? arguments[1] : PORT;
	struct sockaddr_in6 here = { .sin6_family = AF_INET6, .sin6_port = htons(atoi(port)) };
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 16)) {
		perror("roxe-agent");
		return 1;
	}
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (fork() == 0) {
			close(listener);
			if (count > 2)
				hand_over(fd, arguments + 2);
			else
				converse(fd);
			return count > 2;
		}
		close(fd);
	}
}
