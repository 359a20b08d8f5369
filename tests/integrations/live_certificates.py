"""Certificates for this machine, signed by themselves and made on the spot."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder, name="page", password=None):
    """Paths of a certificate for 127.0.0.1 and of its private key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - day, now + day, [])
    made = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    cert_path, key_path = folder / f"{name}.cert.pem", folder / f"{name}.key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.touch(0o600)
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    return cert_path, key_path
